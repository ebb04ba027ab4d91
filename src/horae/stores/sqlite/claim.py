"""Claiming in SQLite: each lane gives its share, as far as its queue has room, through the gates."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from horae.core.decisions.fairness import Lane, Offer, part_of_lane, share_out
from horae.core.model import NodeId
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims
from horae.stores.sqlite import batches
from horae.stores.sqlite.batches import Waiting
from horae.stores.sqlite.codecs import FIRST, maybe_time, to_blob, to_json, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.gates import ClaimGates
from horae.stores.sqlite.queues import Rooms, rooms, settings

MAX_CONTESTED = 1000  # blocked runs that one claim brings up
LOOK_BEYOND = 100  # runs behind a full queue that are looked at in case they overlap
MAX_PAGE = 500  # runs of a lane that are read in one go; with the largest parameters they take 60 MB
MIN_PAGE = 10


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
    set_for = settings(db)
    lanes = [lane for lane in _lanes(db, request.queues) if lane.queue not in set_for or not set_for[lane.queue].paused]
    look = _Look(db, request, rooms(db, set_for, (lane.queue for lane in lanes)))
    look.take(lanes)
    db.executemany(STATEMENTS["take_gate"], [(gate, node) for gate in look.gates.taken])
    if look.taken:
        batches.claim(db, look.taken, request.node)
    claims = Claims(
        contested=look.gates.contested,
        more=look.more,
        next_at=None if look.more else _next_at(db, lanes, request.until),
        lined_up_at=maybe_time(look.gates.lined_up_at),
    )
    return Taken(look.taken, request.node, claims)


def _lanes(db: sqlite3.Connection, queues: Sequence[str]) -> list[Lane]:
    """The lanes that have something to claim."""
    if queues:
        found = db.execute(STATEMENTS["lanes_of_queues"], {"queues": to_json(queues)})
    else:
        found = db.execute(STATEMENTS["lanes_of_every_queue"])
    return [Lane(*row) for row in found]


def _next_at(db: sqlite3.Connection, lanes: Sequence[Lane], until: datetime) -> datetime | None:
    found = [
        db.execute(STATEMENTS["next_in_lane"], {**_place(lane), "until": to_micros(until)}).fetchone()[0]
        for lane in lanes
    ]
    return maybe_time(min((wake_at for wake_at in found if wake_at is not None), default=None))


class _Look:
    """One look through the lanes: the rows to take, those with a gate only if they may pass it."""

    def __init__(self, db: sqlite3.Connection, request: ClaimRequest, room: Rooms) -> None:
        self.taken: list[Waiting] = []
        self.gates = ClaimGates(db, request, frozenset(request.full_gates))
        self.more = False  # whether there may be more to claim right now
        self._db = db
        self._limit = request.limit
        self._part = request.limit  # how far each lane is counted
        self._rooms = room
        self._floor = FIRST if request.floor is None else to_micros(request.floor)
        self._bounds = {"until": to_micros(request.until), "tasks": to_json(request.tasks)}

    def take(self, lanes: Sequence[Lane]) -> None:
        """Take from each lane what it gives, the highest priority first."""
        if self._limit <= 0:
            return
        self._part = part_of_lane(len(lanes), self._limit)
        offers = self._offers(lanes)
        shares = share_out(offers, self._limit, part=self._part)
        for _, same_priority in groupby(offers, key=lambda offer: offer.lane.priority):
            start = len(self.taken)
            for offer in same_priority:
                self._take(offer, shares.get(offer.lane, 0))
            if len(offers) > 1:
                self.taken[start:] = sorted(self.taken[start:], key=lambda row: (row.wake_at, row.seq))

    def _offers(self, lanes: Sequence[Lane]) -> list[Offer]:
        """What each lane has; a single one is not asked, for it gives what it can."""
        if len(lanes) == 1:
            return [Offer(lane, self._limit, None, self._rooms.left.get(lane.queue)) for lane in lanes]
        request = self.gates.request
        gates = {
            "now": to_micros(request.now),
            "node": to_blob(request.node),
            "full": to_json(request.full_gates),
            "undecided": to_json(request.undecided_gates),
            "limit": self._part,
        }
        offers = []
        for lane in lanes:
            which = {**self._which(lane), **gates, "after": self._since(lane)}
            count, first_at = self._db.execute(STATEMENTS["offer_of_lane"], which).fetchone()
            if count:
                offers.append(Offer(lane, count, to_time(first_at), self._rooms.left.get(lane.queue)))
        return offers

    def _take(self, offer: Offer, share: int) -> None:
        """Take up to `share` runs of a lane; behind a full queue a few are looked at, which may turn out to overlap."""
        queue, got, beyond = offer.lane.queue, 0, 0
        if not share and not self._rooms.is_full(queue):
            self.more = True
            return
        for row in self._rows(offer.lane, share):
            if self._rooms.is_full(queue):
                beyond += 1
                self.gates.contest(row)
            elif row.gate is None or self.gates.admit(row):
                got += 1
                self.taken.append(row)
                self._rooms.take(queue)
            if len(self.gates.contested) >= MAX_CONTESTED:
                self.more = True
                return
            if beyond >= LOOK_BEYOND or (got and got == share and not self._rooms.is_full(queue)):
                break
        self.more = self.more or (got > 0 and got == share and offer.count >= min(share + 1, self._part))

    def _rows(self, lane: Lane, share: int) -> Iterator[Waiting]:
        """A lane page by page, by wake-up time."""
        which = {**self._which(lane), "limit": min(max(share, MIN_PAGE), MAX_PAGE)}
        after, seq = self._since(lane), FIRST
        while rows := batches.lane(self._db, {**which, "after": after, "seq": seq}):
            yield from rows
            if len(rows) < which["limit"]:
                return
            after, seq = rows[-1].wake_at, rows[-1].seq

    def _since(self, lane: Lane) -> int:
        """Where to begin: what a pause or a limit kept from being claimed lies below the floor."""
        return FIRST if lane.queue in self._rooms.said else self._floor

    def _which(self, lane: Lane) -> dict[str, Any]:
        return {**_place(lane), **self._bounds}


def _place(lane: Lane) -> Mapping[str, Any]:
    return {"queue": lane.queue, "priority": lane.priority, "band": lane.band}
