"""Best-effort `run.started` and `run.progress` events, polled twice a second."""

from collections.abc import Collection
from datetime import datetime

from horae.core.events import EventKind
from horae.core.model import Run, RunId, State
from horae.events.event import FeedEvent
from horae.ports.reader import Reader, RunFilter
from horae.queries.listed import listed_run

LIMIT = 1000  # running runs per read
MAX_OWNERS = 8  # that are read one by one; more are read together

BEST_EFFORT = frozenset({EventKind.RUN_STARTED, EventKind.RUN_PROGRESS})


class ProgressPoll:
    """Compares the running runs with those of the last poll."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._seen: dict[RunId, tuple[int, float | None]] = {}  # attempt and progress
        self._owners: frozenset[str | None] = frozenset()

    async def poll(self, owners: Collection[str | None], now: datetime) -> list[FeedEvent]:
        """Return events for runs that started or progressed since the last poll; none for owners that are new."""
        wanted = frozenset(owners)
        running = [run for run in await self._running(wanted) if _covers(wanted, run.owner)]
        events = [
            event
            for run in running
            if _covers(self._owners, run.owner) and (event := self._difference(run, now)) is not None
        ]
        self._seen = {run.id: (run.attempt, run.progress) for run in running}
        self._owners = wanted
        return events

    async def _running(self, owners: frozenset[str | None]) -> list[Run]:
        together: Collection[str | None] = (None,) if None in owners or len(owners) > MAX_OWNERS else owners
        found: list[Run] = []
        for owner in together:
            which = RunFilter(owner=owner, states=frozenset({State.RUNNING}))
            found += (await self._store.list_runs(which, cursor=None, limit=LIMIT)).items
        return found

    def _difference(self, run: Run, now: datetime) -> FeedEvent | None:
        attempt, progress = self._seen.get(run.id, (0, None))
        if attempt != run.attempt:
            return _event(EventKind.RUN_STARTED, run, run.started_at or now)
        if progress != run.progress:
            return _event(EventKind.RUN_PROGRESS, run, now)
        return None


def _covers(owners: frozenset[str | None], owner: str) -> bool:
    return owner in owners or None in owners


def _event(kind: EventKind, run: Run, at: datetime) -> FeedEvent:
    listed, omitted = listed_run(run)
    return FeedEvent(kind=kind, at=at, owner=run.owner, job_id=run.job_id, run_id=run.id, run=listed, omitted=omitted)
