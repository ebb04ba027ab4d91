"""Starts and progress of runs as somebody sees them who looks twice a second: told as far as they are seen."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from horae.core.events import EventKind
from horae.core.model import Run, RunId, State
from horae.events.event import Happening
from horae.ports.reader import Reader, RunFilter

LIMIT = 1000  # runs that are looked at
ALONE = 8  # owners that are looked at one by one; more are looked at together

SIGHTED = frozenset({EventKind.RUN_STARTED, EventKind.RUN_PROGRESS})


@dataclass
class Sightings:
    """What was seen at the last look."""

    store: Reader
    _seen: dict[RunId, tuple[int, float | None]] = field(default_factory=dict)  # attempt and progress
    _owners: frozenset[str | None] = frozenset()

    async def look(self, owners: Collection[str | None], now: datetime) -> list[Happening]:
        """What has begun or advanced since the last look; the first look at an owner tells nothing."""
        wanted = frozenset(owners)
        running = [run for run in await self._running(wanted) if _covers(wanted, run.owner)]
        news = [
            happening
            for run in running
            if _covers(self._owners, run.owner) and (happening := self._difference(run, now)) is not None
        ]
        self._seen = {run.id: (run.attempt, run.progress) for run in running}
        self._owners = wanted
        return news

    async def _running(self, owners: frozenset[str | None]) -> list[Run]:
        together: Collection[str | None] = (None,) if None in owners or len(owners) > ALONE else owners
        found: list[Run] = []
        for owner in together:
            which = RunFilter(owner=owner, states=frozenset({State.RUNNING}))
            found += (await self.store.list_runs(which, cursor=None, limit=LIMIT)).items
        return found

    def _difference(self, run: Run, now: datetime) -> Happening | None:
        attempt, progress = self._seen.get(run.id, (0, None))
        if attempt != run.attempt:
            return _sighted(EventKind.RUN_STARTED, run, run.started_at or now)
        if progress != run.progress:
            return _sighted(EventKind.RUN_PROGRESS, run, now)
        return None


def _covers(owners: frozenset[str | None], owner: str) -> bool:
    return owner in owners or None in owners


def _sighted(kind: EventKind, run: Run, at: datetime) -> Happening:
    return Happening(kind=kind, at=at, owner=run.owner, job_id=run.job_id, run_id=run.id, run=run)
