"""What all parts of the PostgreSQL store share: the connections, the signals, and what is known to exist already."""

from collections.abc import Iterable, Sequence
from datetime import date

from horae.core.model import Run
from horae.store import Kind, Signal
from horae.stores.postgres_pool import Database
from horae.stores.postgres_signals import Signals

MAX_KNOWN = 100_000  # places that are remembered before they are forgotten and asked for anew


class PostgresBase:
    """The ground that the parts of the store stand on."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        self._db = Database(url, pool_size)
        self._signals = Signals(self._db.address)
        self._lanes: set[tuple[str, int]] = set()
        self._shelves: set[tuple[str, str, str]] = set()
        self._days: set[date] = set()

    async def _ensure_places(self, runs: Iterable[Run]) -> None:
        """Make the lanes and shelves of runs known, in a transaction before theirs; they are never removed."""
        specs = {(run.owner, run.spec.task, run.spec.queue, run.spec.priority) for run in runs}
        shelves = {(owner, task, queue) for owner, task, queue, _ in specs} - self._shelves
        lanes = {(queue, priority) for _, _, queue, priority in specs} - self._lanes
        if lanes:
            await self._db.rows("add_lanes", *zip(*sorted(lanes), strict=True))
            self._lanes |= lanes
        if shelves:
            await self._db.rows("add_shelves", *zip(*sorted(shelves), strict=True))
            if len(self._shelves) > MAX_KNOWN:
                self._shelves.clear()
            self._shelves |= shelves

    async def _ensure_days(self, days: set[date]) -> None:
        """Make the partitions for what ends on these days."""
        for day in sorted(days - self._days):
            await self._db.rows("ensure_day", day)
            self._days.add(day)


def due_signal(runs: Sequence[Run]) -> list[Signal]:
    """That runs wait to be claimed, from the earliest on."""
    return [Signal(kind=Kind.DUE, at=min(run.wake_at for run in runs))] if runs else []
