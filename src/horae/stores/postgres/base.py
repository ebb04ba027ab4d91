"""What all parts of the PostgreSQL store share: connections, signals, and caches of lanes, shelves and days."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from time import monotonic
from typing import Any

from horae.core.decisions.fairness import Lane
from horae.core.model import JobId, Run, RunId
from horae.core.signals import Kind, Signal
from horae.stores.postgres.codecs import ROWS, Places, first_day
from horae.stores.postgres.connection.database import Database, Session
from horae.stores.postgres.connection.notify import Signals

MAX_PLACES = 100_000  # in the cache before it is emptied
PLACES_SECONDS = 900  # the same; lanes and shelves are removed when they were not learned for an hour


class PostgresBase:
    """The state that the parts of the store share."""

    def __init__(self, url: str, *, pool_size: int, listens: bool) -> None:
        self._db = Database(url, pool_size)
        self._signals = Signals(self._db.address, listens=listens)
        self._places: Places = {}
        self._learned_at = monotonic()
        self._days: set[date] = set()
        self._lanes: dict[int, Lane] = {}  # that were due at our last claim
        self._looked_to = ""  # the gate up to which we looked for parked runs that nothing blocks
        self._rechecked_to = 0  # the lane up to which we looked for runs that wake before it does
        self._removed_lanes_at = 0.0  # when we last looked for lanes and shelves that nobody uses any more
        self._shelved_to = 0  # the shelf up to which we did
        self._put_off_at = 0.0  # when we last put lanes off because many were idle
        self._idle_lanes: list[int] = []  # of these, without anything to claim
        self._limited: frozenset[str] = frozenset()  # queues that had a limit when we last claimed

    async def _places_of(self, runs: Iterable[Run]) -> Places:
        """The lanes and shelves of runs; new ones are made in a transaction of their own.

        Those that no node has learned of for long are removed, so what we know is learned anew before that.
        """
        specs = {(run.owner, run.spec.task, run.spec.queue, run.spec.priority) for run in runs}
        if len(self._places) > MAX_PLACES or monotonic() - self._learned_at > PLACES_SECONDS:
            self._places, self._learned_at = {}, monotonic()
        places = self._places  # it may be replaced while we learn
        if not specs <= places.keys():
            await self._learn_places(places, sorted(specs - places.keys()))
        return places

    async def _learn_places(self, places: Places, specs: Sequence[tuple[str, str, str, int]]) -> None:
        async with self._db.session() as session:
            lane_of = await _learn(session, "lanes", {(queue, priority, owner) for owner, _, queue, priority in specs})
            shelf_of = await _learn(session, "shelves", {(owner, task, queue) for owner, task, queue, _ in specs})
        for owner, task, queue, priority in specs:
            places[owner, task, queue, priority] = (lane_of[queue, priority, owner], shelf_of[owner, task, queue])

    async def _ensure_days(self, days: set[date]) -> None:
        """Make the partitions for what ends on these days."""
        for day in sorted(days - self._days):
            await self._db.rows("ensure_day", day)
            self._days.add(day)


async def _learn(session: Session, kind: str, wanted: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    """The ids of lanes or shelves; those that are not there yet are made."""
    found = {tuple(row[:3]): row[3] for row in await session.rows(f"add_{kind}", *zip(*sorted(wanted), strict=True))}
    if rest := sorted(wanted - found.keys()):
        found |= {tuple(row[:3]): row[3] for row in await session.rows(f"{kind}_among", *zip(*rest, strict=True))}
    return found


def due_from(times: Sequence[datetime]) -> list[Signal]:
    """The signal that runs can be claimed from the earliest of these times on."""
    return [Signal(kind=Kind.DUE, at=min(times))] if times else []


async def wake_parked(session: Session, left: Sequence[tuple[str | None, datetime | None]]) -> list[datetime]:
    """Wake the next run of each gate that a run left, and when; returns the times at which they wake."""
    return await session.value("wake_parked", *zip(*left, strict=True)) or [] if left else []


async def find_ended(session: Session, ids: Sequence[RunId | JobId], first: date | None = None) -> list[Run]:
    """EndedRuns runs by id, from a day on; None begins with the day of the earliest id."""
    rows = await session.rows("ended_runs_among", ids, first or first_day(ids)) if ids else []
    return [ROWS.run(row) for row in rows]
