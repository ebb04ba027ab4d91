"""Claiming in SQLite: lane by lane in order of priority, as far as queues have room, and through the gates."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, zip_longest
from typing import Any

from horae.core.model import JobId, NodeId, Run
from horae.core.release import Rival
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims, Contested
from horae.stores.sqlite import batches
from horae.stores.sqlite import queues as sqlite_queues
from horae.stores.sqlite.batches import Waiting, waiting
from horae.stores.sqlite.codecs import FIRST, maybe_time, to_blob, to_hex, to_json, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.queues import Rooms

MAX_CONTESTED = 1000  # blocked runs that one claim brings up
MAX_RIVALS = 50  # of a long line the first are enough to decide by
MAX_PAGE = 500  # runs of a lane that are read in one go; with the largest parameters they take 60 MB
MIN_PAGE = 10

Lane = tuple[str, int, int]  # queue, priority, band of owners


@dataclass(frozen=True, slots=True)
class Taken:
    """What a claim brought, as it came from the database: it becomes runs when the write lock is free again."""

    rows: Sequence[Waiting]
    node: NodeId
    claims: Claims  # but for the runs

    def decoded(self) -> Claims:
        """With the runs."""
        return replace(self.claims, runs=batches.claimed(self.rows, self.node))


def claim(transaction: Transaction, request: ClaimRequest) -> Taken:
    """Take runs for a node."""
    db, node = transaction.db, to_blob(request.node)
    if db.execute(STATEMENTS["node_is_registered"], (node,)).fetchone() is None:
        return Taken((), request.node, Claims(alive=False))
    db.executemany(STATEMENTS["free_gate"], [(gate, node) for gate in request.free_gates])
    said = sqlite_queues.settings(db)
    lanes = [lane for lane in _lanes(db, request.queues) if lane[0] not in said or not said[lane[0]].paused]
    rooms = sqlite_queues.rooms(db, said, (queue for queue, _, _ in lanes))
    taken, gates, more = _choose(db, request, lanes, rooms)
    db.executemany(STATEMENTS["take_gate"], [(gate, node) for gate in gates.taken])
    if taken:
        batches.claim(db, taken, request.node)
    next_at = None if more else _next_at(db, lanes, request.until)
    claims = Claims(contested=gates.contested, more=more, next_at=next_at, lined_up_at=maybe_time(gates.lined_up_at))
    return Taken(taken, request.node, claims)


def _lanes(db: sqlite3.Connection, queues: Sequence[str]) -> list[Lane]:
    """The lanes that have something to claim, the highest priority first, and within it queue by queue."""
    if queues:
        return db.execute(STATEMENTS["lanes_of_queues"], {"queues": to_json(queues)}).fetchall()
    return db.execute(STATEMENTS["lanes_of_every_queue"]).fetchall()


def _choose(
    db: sqlite3.Connection, request: ClaimRequest, lanes: Sequence[Lane], rooms: Rooms
) -> tuple[list[Waiting], "_Gates", bool]:
    """The rows to take, those with a gate only if they may pass it, and whether there may be more."""
    gates = _Gates(db, request, frozenset(request.full_gates))
    taken: list[Waiting] = []
    if request.limit <= 0:
        return taken, gates, False
    for row in _candidates(db, request, lanes, rooms):
        if rooms.left and rooms.is_full(row.queue):
            gates.contest(row)
        elif row.gate is None or gates.admit(row):
            taken.append(row)
            if rooms.left:
                rooms.take(row.queue)
        if len(taken) >= request.limit or len(gates.contested) >= MAX_CONTESTED:
            return taken, gates, True
    return taken, gates, False


def _candidates(
    db: sqlite3.Connection, request: ClaimRequest, lanes: Sequence[Lane], rooms: Rooms
) -> Iterator[Waiting]:
    """What wakes by `until`: the highest priority first, the queues in turn, the owners in turn, each by wake-up time.

    Read not much further than it is asked for.
    """
    floor = FIRST if request.floor is None else to_micros(request.floor)
    bounds = {"until": to_micros(request.until), "tasks": to_json(request.tasks)}
    for priority, found in groupby(lanes, key=lambda lane: lane[1]):
        peers = list(found)
        size = min(max(-(-request.limit // len(peers)), MIN_PAGE), MAX_PAGE)  # each brings its share, rounded up
        streams = []
        for queue, bands in groupby(peers, key=lambda lane: lane[0]):
            # What a pause or a limit kept from being claimed has been waiting below the floor.
            since = FIRST if queue in rooms.said else floor
            which = {"queue": queue, "priority": priority, "limit": size, **bounds}
            rows = _in_turn([_pages(db, {**which, "band": band}, since) for _, _, band in bands])
            streams.append(rooms.within(queue, rows) if queue in rooms.left else rows)
        yield from _in_turn(streams)


def _in_turn(streams: Sequence[Iterator[Waiting]]) -> Iterator[Waiting]:
    return streams[0] if len(streams) == 1 else _one_of_each(streams)


def _one_of_each(streams: Sequence[Iterator[Waiting]]) -> Iterator[Waiting]:
    for turn in zip_longest(*streams):
        yield from sorted(filter(None, turn), key=lambda row: row.wake_at)


def _pages(db: sqlite3.Connection, which: Mapping[str, Any], since: int) -> Iterator[Waiting]:
    """A lane page by page, from a wake-up time on."""
    after, seq = since, FIRST
    while rows := batches.lane(db, {**which, "after": after, "seq": seq}):
        yield from rows
        if len(rows) < which["limit"]:
            return
        after, seq = rows[-1].wake_at, rows[-1].seq


def _next_at(db: sqlite3.Connection, lanes: Sequence[Lane], until: datetime) -> datetime | None:
    found = [
        db.execute(
            STATEMENTS["next_in_lane"],
            {"queue": queue, "priority": priority, "band": band, "until": to_micros(until)},
        ).fetchone()[0]
        for queue, priority, band in lanes
    ]
    return maybe_time(min((wake_at for wake_at in found if wake_at is not None), default=None))


@dataclass(slots=True)
class _Gates:
    """The gates that a claim meets: which it may pass, and what is due but blocked."""

    db: sqlite3.Connection
    request: ClaimRequest
    full: frozenset[str]
    taken: dict[str, str] = field(default_factory=dict)  # the id of the run that this claim takes, by gate
    contested: list[Contested] = field(default_factory=list)
    lined_up_at: int | None = None  # when the first wakes that comes next in a gate of which one was taken
    letters: bool | None = None  # whether a dead letter blocks any gate; None: not looked yet

    def admit(self, row: Waiting) -> bool:
        """Whether a run may pass its gate; one that is due and may not is noted as contested."""
        assert row.gate is not None
        if row.gate not in self.full and not self._is_blocked(row):
            if self.taken.setdefault(row.gate, row.id) == row.id:
                return True
            self.lined_up_at = row.wake_at if self.lined_up_at is None else min(self.lined_up_at, row.wake_at)
            return False  # one for each gate; its next comes another time
        if self._is_due(row) and row.gate not in self.request.undecided_gates:
            self.contested.append(Contested(run=waiting(row), rivals=self._rivals(row)))
        return False

    def contest(self, row: Waiting) -> None:
        """Note a run that is due and has no room in its queue, if others are ahead of it: it may overlap them."""
        if row.gate is not None and self._is_due(row) and (rivals := self._rivals(row)):
            self.contested.append(Contested(run=waiting(row), rivals=rivals))

    def _is_due(self, row: Waiting) -> bool:
        return max(row.due_at, row.wake_at) <= to_micros(self.request.now)

    def _is_blocked(self, row: Waiting) -> bool:
        holder = self.db.execute(STATEMENTS["gate_holder"], (row.gate,)).fetchone()
        if holder is not None and to_hex(holder[0]) != self.request.node:
            return True
        taken = self.taken.get(row.gate) if row.gate is not None else None
        place = {**self._place(row), "taken": None if taken is None else to_blob(taken)}
        if self.db.execute(STATEMENTS["blocked_by_earlier"], place).fetchone() is not None:
            return True
        return self._letters_block() and self.db.execute(STATEMENTS["blocked_by_letter"], place).fetchone() is not None

    def _letters_block(self) -> bool:
        """Whether any letter blocks a gate at all: asked once, for the answer is nearly always no."""
        if self.letters is None:
            self.letters = self.db.execute(STATEMENTS["some_letter_blocks"]).fetchone() is not None
        return self.letters

    def _rivals(self, row: Waiting) -> list[Rival]:
        which = {**self._place(row), "job_id": to_blob(row.job_id or row.id), "limit": MAX_RIVALS}
        unfinished = self.db.execute(STATEMENTS["rivals"], which).fetchall()
        letters = self.db.execute(STATEMENTS["blocking_letters"], which).fetchall() if self._letters_block() else []
        return [
            *(Rival(job_id=JobId(to_hex(job_id)), started_at=None, failed=True) for (job_id,) in letters),
            *(Rival(job_id=JobId(to_hex(job_id)), started_at=maybe_time(started)) for job_id, started in unfinished),
        ]

    def _place(self, row: Waiting) -> dict[str, Any]:
        node = to_blob(self.request.node)
        return {"gate": row.gate, "due_at": row.due_at, "id": to_blob(row.id), "node": node}


def park(transaction: Transaction, runs: Sequence[Run]) -> None:
    """Keep blocked runs away from claims, if something is still ahead of them."""
    transaction.db.executemany(
        STATEMENTS["park_run"], [{"id": to_blob(run.id), "fence": run.fence} for run in runs if run.gate is not None]
    )


def wake_next(transaction: Transaction, gate: str, now: datetime) -> bool:
    """Let the first parked run of a gate be claimed again; False when none is parked."""
    woken = transaction.db.execute(STATEMENTS["unpark_next"], {"gate": gate, "now": to_micros(now)}).fetchall()
    for (wake_at,) in woken:
        transaction.due(to_time(wake_at))
    return bool(woken)


def tidy(transaction: Transaction, now: datetime) -> int:
    """Free gates of nodes that are gone, and wake parked runs that nothing blocks."""
    db = transaction.db
    freed = [gate for (gate,) in db.execute(STATEMENTS["free_gates_of_gone_nodes"]).fetchall()]
    if freed:
        transaction.due(now)  # what waits behind them may be claimed at last
    waiting = [gate for (gate,) in db.execute(STATEMENTS["parked_gates"]).fetchall()]
    idle = [gate for gate in waiting if db.execute(STATEMENTS["gate_is_blocked"], {"gate": gate}).fetchone() is None]
    return len(freed) + sum(wake_next(transaction, gate, now) for gate in idle)
