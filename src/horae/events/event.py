"""What listeners are told: one event with the job or run that it is about, and the id by which they come back."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from horae.core.errors import Gone
from horae.core.events import EventKind
from horae.core.model import JobId, Run, RunId
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.ports.reader import Reader
from horae.queries.jobs import Inspection, Overview

SLICE = 100  # subjects of a batch that are loaded together
KEPT_SLICES = 16  # that were loaded last: listeners that keep up share them
MARGIN = timedelta(minutes=1)  # events are not committed exactly in the order of their times

_ID = re.compile(r"(?P<position>\d+(?:\.\d+)*)-(?P<count>\d{1,9})-(?P<at>\d{1,11})")
_START_ANEW = "connect again without Last-Event-ID, and read the jobs or runs that matter to you anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventId:
    """Where a listener stands: everything up to a position, and so many subjects of the batch after it."""

    position: str
    count: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.position}-{self.count}-{int(self.at.timestamp())}"

    @property
    def place(self) -> tuple[int, ...]:
        return place_of(self.position)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Happening:
    """One event; the same object for all who are told of it."""

    kind: EventKind
    at: datetime
    owner: str
    job_id: JobId | None  # None: its run is not kept any more
    run_id: RunId | None = None
    job: Overview | None = None  # of an event of a job: as it is now; None when it is not kept any more
    run: Run | None = None  # of an event of a run: the same
    id: EventId | None = None  # None: seen, but not kept, so that nobody can come back for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What a listener wants to hear of."""

    owner: str | None  # None: everybody's
    kinds: frozenset[EventKind] = frozenset(EventKind)
    job_id: JobId | None = None

    def may_concern(self, kind: EventKind, owner: str) -> bool:
        """Whether events of a kind and owner are worth a look."""
        return kind in self.kinds and self.owner in (None, owner)

    def concerns(self, happening: Happening) -> bool:
        """Whether it is to be told."""
        fits = self.job_id is None or self.job_id == happening.job_id
        return fits and self.may_concern(happening.kind, happening.owner)


def place_of(position: str) -> tuple[int, ...]:
    """A position as numbers, which have the order of the events."""
    return tuple(map(int, position.split(".")))


def read_event_id(text: str, *, like: str, now: datetime) -> EventId:
    """The id that a listener comes back with; raises Gone when what followed it may not be kept any more.

    `like` is any position of this store: those of another one look different, or lie in the future.
    """
    found = _ID.fullmatch(text)
    if found is None or len(text) > 100 or len(place_of(found["position"])) != len(place_of(like)):
        raise Gone(f"the event id {text[:100]!r} is not one that this server gave out; {_START_ANEW}")
    at = datetime.fromtimestamp(int(found["at"]), UTC)
    if at > now + MARGIN:
        raise Gone(f"the event id {text!r} is from the future, so it was given out by another server; {_START_ANEW}")
    if at < now - EVENT_LIFE + MARGIN:
        raise Gone(f"events are kept for {EVENT_LIFE // timedelta(hours=1)} h, and {text!r} is older; {_START_ANEW}")
    return EventId(position=found["position"], count=int(found["count"]), at=at)


class Loader:
    """Makes events of batches, in slices; what several listeners want at about the same time is read once."""

    def __init__(self, store: Reader, inspection: Inspection) -> None:
        self._store = store
        self._inspection = inspection
        self._slices: OrderedDict[tuple[str, str, int], asyncio.Task[list[Happening]]] = OrderedDict()

    async def load(self, batch: EventBatch, first: int, before: str) -> list[Happening]:
        """Up to SLICE events of a batch from the subject `first` on; `before` is the position of the batch before."""
        key = (before, batch.position, first)
        loading = self._slices.get(key)
        if loading is None:
            loading = self._slices[key] = asyncio.create_task(self._load(batch, first, before))
            loading.add_done_callback(lambda done: self._loaded(key, done))
            while len(self._slices) > KEPT_SLICES:
                self._slices.popitem(last=False)
        return await asyncio.shield(loading)  # others may wait for it when this listener leaves

    def _loaded(self, key: tuple[str, str, int], loading: asyncio.Task[list[Happening]]) -> None:
        """What failed is tried again by the next who asks."""
        if loading.cancelled() or loading.exception() is not None:
            self._slices.pop(key, None)

    async def _load(self, batch: EventBatch, first: int, before: str) -> list[Happening]:
        subjects = batch.subjects[first : first + SLICE]
        ids = [_id(batch, place, before) for place in range(first, first + len(subjects))]
        of_jobs = batch.kind.startswith("job.")
        return await (self._of_jobs if of_jobs else self._of_runs)(batch, subjects, ids)

    async def _of_jobs(self, batch: EventBatch, subjects: Sequence[str], ids: Sequence[EventId]) -> list[Happening]:
        jobs = await self._store.jobs([JobId(subject) for subject in subjects])
        shown = dict(zip(jobs, await self._inspection.overviews(list(jobs.values())), strict=True))
        return [
            Happening(kind=batch.kind, at=batch.at, owner=batch.owner, job_id=job_id, job=shown.get(job_id), id=ident)
            for job_id, ident in zip(map(JobId, subjects), ids, strict=True)
        ]

    async def _of_runs(self, batch: EventBatch, subjects: Sequence[str], ids: Sequence[EventId]) -> list[Happening]:
        runs = {run.id: run for run in await self._store.ended([RunId(subject) for subject in subjects])}
        return [
            Happening(
                kind=batch.kind,
                at=batch.at,
                owner=batch.owner,
                job_id=None if (run := runs.get(run_id)) is None else run.job_id,
                run_id=run_id,
                run=run,
                id=ident,
            )
            for run_id, ident in zip(map(RunId, subjects), ids, strict=True)
        ]


def _id(batch: EventBatch, place: int, before: str) -> EventId:
    """The id of a subject of a batch; that of the last is the position after it, which needs no counting."""
    if place + 1 == len(batch.subjects):
        return EventId(position=batch.position, count=0, at=batch.at)
    return EventId(position=before, count=place + 1, at=batch.at)
