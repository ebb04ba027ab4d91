"""Claims in SQLite: each lane gives its share, within the limit of its queue and through the gates."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec.structs import asdict

from horae.core.decisions.fairness import Lane, Offer, Rooms, part_of_lane, share_out
from horae.core.decisions.gates import ClaimGates, Passage
from horae.core.model import RunId
from horae.core.records import QueueSettings
from horae.ports.store import ClaimRequest, Claims, Contested
from horae.stores.sqlite import batches, lanes
from horae.stores.sqlite.batches import WaitingRow
from horae.stores.sqlite.codecs import FIRST, to_blob, to_json, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.gates import rivals, state_of_gate
from horae.stores.sqlite.queues import rooms, settings

MAX_CONTESTED = 1000  # blocked runs that one claim returns
LOOK_BEYOND = 100  # runs of a full queue that are looked at, because they may overlap
MAX_PAGE = 500  # runs of a lane that are read at once; with the largest parameters they take 60 MB
MIN_PAGE = 10


def claim(transaction: Transaction, request: ClaimRequest) -> tuple[Sequence[WaitingRow], Claims]:
    """Take runs for a node; returns them as rows, to be decoded after the write lock is released."""
    db, node = transaction.db, to_blob(request.node)
    if db.execute(STATEMENTS["node_is_registered"], (node,)).fetchone() is None:
        return (), Claims(alive=False)
    db.executemany(STATEMENTS["free_gate"], [(gate, node) for gate in request.free_gates])
    known = settings(db)
    if request.among is not None:
        return _claim_among(db, request, request.among, known)
    due, beyond = lanes.due(db, request.until, request.queues)
    scan = _Scan(db, request, known, rooms(db, known, (lane.queue for lane in due)))
    scan.take(due)
    db.executemany(STATEMENTS["take_gate"], [(gate, node) for gate in scan.gates.taken])
    if scan.taken:
        batches.claim(db, scan.taken, request.node)
    if beyond:
        lanes.look_later(db, (lane for lane in due if lane not in scan.gave), request.now)
    more = scan.more or (beyond and len(scan.taken) > 0)
    next_at, left_at = (None, None) if more else _put_off(db, due, request)
    claims = Claims(
        contested=scan.contested,
        more=more,
        next_at=next_at,
        left_at=left_at,
        lined_up_at=scan.gates.next_at,
        left=scan.left(due),
    )
    return scan.taken, claims


def _claim_among(
    db: sqlite3.Connection, request: ClaimRequest, run_ids: Sequence[RunId], known: Mapping[str, QueueSettings]
) -> tuple[Sequence[WaitingRow], Claims]:
    """Take some of the given runs, whatever their lanes have."""
    rows = batches.among(db, list(dict.fromkeys(run_ids)))
    scan = _Scan(db, request, known, rooms(db, known, (row.queue for row in rows)))
    scan.take_among(rows)
    db.executemany(STATEMENTS["take_gate"], [(gate, to_blob(request.node)) for gate in scan.gates.taken])
    if scan.taken:
        batches.claim(db, scan.taken, request.node)
    told = {row.seq for row in scan.taken}
    contested = {item.run.id for item in scan.contested}
    stay = {RunId(row.id.lower()): to_time(row.wake_at) for row in rows if row.seq not in told}
    claims = Claims(
        contested=scan.contested,
        lined_up_at=scan.gates.next_at,
        waiting={run_id: wake_at for run_id, wake_at in stay.items() if run_id not in contested},
    )
    return scan.taken, claims


def _put_off(
    db: sqlite3.Connection, due: Sequence[Lane], request: ClaimRequest
) -> tuple[datetime | None, datetime | None]:
    return lanes.put_off(db, due, now=request.now, until=request.until, queues=request.queues)


class _Scan:
    """Reads lanes for one claim, and collects the rows to take."""

    def __init__(
        self, db: sqlite3.Connection, request: ClaimRequest, known: Mapping[str, QueueSettings], room: Rooms
    ) -> None:
        self.taken: list[WaitingRow] = []
        self.contested: list[Contested] = []
        self.gave: set[Lane] = set()  # lanes of which some were taken
        self.more = False  # whether there may be more to claim right now
        self.gates = ClaimGates(
            request.node, request.now, request.full_gates, request.undecided_gates, per_gate=request.per_gate
        )
        self._last: dict[str, WaitingRow] = {}  # the last run that it takes of each gate
        self._db = db
        self._request = request
        self._known = known
        self._rooms = room
        self._part = request.limit  # how far each lane is counted
        self._floor = FIRST if request.floor is None else to_micros(request.floor)
        self._bounds = {"until": to_micros(request.until), "tasks": to_json(request.tasks)}

    def take(self, due: Sequence[Lane]) -> None:
        """Take its share from each lane, the highest priority first."""
        limit = self._request.limit
        if limit <= 0:
            return
        self._part = part_of_lane(len(due), limit)
        offers = self._offers(due)
        shares = share_out(offers, limit, part=self._part)
        for _, same_priority in groupby(offers, key=lambda offer: offer.lane.priority):
            start = len(self.taken)
            for offer in same_priority:
                self._take(offer, shares.get(offer.lane, 0))
            if len(offers) > 1:
                self.taken[start:] = sorted(self.taken[start:], key=lambda row: (row.wake_at, row.seq))

    def take_among(self, rows: Sequence[WaitingRow]) -> None:
        """Take what it may of the given rows, the highest priority first."""
        request, until, tasks = self._request, to_micros(self._request.until), frozenset(self._request.tasks)
        for row in sorted(rows, key=lambda row: (-batches.priority_of(row), row.wake_at, row.seq)):
            queue, settings = row.queue, self._known.get(row.queue)
            paused = settings is not None and settings.paused
            wanted = not request.queues or queue in request.queues
            if paused or not wanted or row.wake_at > until or batches.task_of(row) not in tasks:
                continue
            if self._rooms.is_full(queue):
                self._note_overlap(row)
            elif len(self.taken) < request.limit and (row.gate is None or self._passes(row, row.gate)):
                self.taken.append(row)
                self._rooms.take(queue)

    def _offers(self, due: Sequence[Lane]) -> list[Offer]:
        """What each lane has; a single lane is not counted, because it shares with none."""
        if len(due) == 1:
            return [Offer(lane, self._request.limit, None, self._rooms.left.get(lane.queue)) for lane in due]
        gates = {
            "now": to_micros(self._request.now),
            "node": to_blob(self._request.node),
            "full": to_json(self._request.full_gates),
            "undecided": to_json(self._request.undecided_gates),
            "limit": self._part,
        }
        offers = []
        for lane in due:
            if self._rooms.is_full(lane.queue):
                offers.append(Offer(lane, 0, None, 0))
                continue
            which = {**self._which(lane), **gates}
            count, first_at = self._db.execute(STATEMENTS["offer_of_lane"], which).fetchone()
            if count:
                offers.append(Offer(lane, count, to_time(first_at), self._rooms.left.get(lane.queue)))
        return offers

    def _take(self, offer: Offer, share: int) -> None:
        """Take up to `share` runs of a lane; of a full queue, check some due runs for overlap."""
        queue, got = offer.lane.queue, 0
        if self._rooms.is_full(queue):
            self._look_beyond(self._which(offer.lane))
            return
        if not share:
            self.more = True
            return
        limited = queue in self._rooms.left
        for row in self._rows(offer.lane, share):
            if row.gate is None or self._passes(row, row.gate):
                got += 1
                self.taken.append(row)
                if limited:
                    self._rooms.take(queue)
            if len(self.contested) >= MAX_CONTESTED:
                self.more = True
                break
            if limited and self._rooms.is_full(queue):
                self._look_beyond({**self._which(offer.lane), "after": row.wake_at, "seq": row.seq})
                break
            if got == share:
                break
        if got:
            self.gave.add(offer.lane)
        self.more = self.more or (got > 0 and got == share and offer.count >= min(share + 1, self._part))

    def _passes(self, row: WaitingRow, gate: str) -> bool:
        """Whether the claim takes a run with a gate; notes a contested one."""
        node, gates = self._request.node, self.gates
        state = None if gates.is_full(gate) else state_of_gate(self._db, row, node, self._last.get(gate))
        passage = gates.admit(gate, row.id, to_time(row.due_at), to_time(row.wake_at), state)
        if passage is Passage.CONTESTED:
            self.contested.append(Contested(run=batches.waiting(row), rivals=rivals(self._db, row, node)))
        if passage is Passage.TAKE:
            self._last[gate] = row
        return passage is Passage.TAKE

    def _look_beyond(self, which: Mapping[str, Any]) -> None:
        """Note due runs of a full queue as contested if others are ahead of them: they may overlap with these."""
        if len(self.contested) >= MAX_CONTESTED:
            self.more = True
            return
        for row in batches.lane_beyond(self._db, {**which, "limit": LOOK_BEYOND}):
            self._note_overlap(row)

    def _note_overlap(self, row: WaitingRow) -> None:
        """Note a due run of a full queue as contested if others are ahead of it."""
        is_due = row.gate is not None and self.gates.is_due(to_time(row.due_at), to_time(row.wake_at))
        if is_due and (ahead := rivals(self._db, row, self._request.node)):
            self.contested.append(Contested(run=batches.waiting(row), rivals=ahead))

    def _rows(self, lane: Lane, share: int) -> Iterator[WaitingRow]:
        """The runs of a lane by wake-up time, read in pages."""
        which = {**self._which(lane), "limit": min(max(share, MIN_PAGE), MAX_PAGE)}
        while rows := batches.lane(self._db, which):
            yield from rows
            if len(rows) < which["limit"]:
                return
            which |= {"after": rows[-1].wake_at, "seq": rows[-1].seq}

    def left(self, due: Sequence[Lane]) -> dict[Lane, datetime]:
        """When the first runs wake that wait in lanes of queues with settings, after what was taken."""
        left = {}
        for lane in due:
            if lane.queue in self._known:
                row = self._db.execute(STATEMENTS["left_in_lane"], self._which(lane)).fetchone()
                left[lane] = self._request.until if row is None else to_time(row[0])
        return left

    def _which(self, lane: Lane) -> dict[str, Any]:
        """The part of a lane to read; runs that a pause or a limit kept from being claimed are below the floor."""
        after = self._floor
        if lane.queue in self._known:
            left_at = self._request.left.get(lane)
            after = FIRST if left_at is None else to_micros(left_at)
        return {**asdict(lane), **self._bounds, "after": after, "seq": FIRST}
