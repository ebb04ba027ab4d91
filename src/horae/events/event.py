"""Events as the feed delivers them: with the job or run that they are about, and an id to resume after."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from horae.core.errors import Gone
from horae.core.events import EventKind
from horae.core.model import JobId, Run, RunId
from horae.core.values import replace
from horae.ports.events import EVENT_LIFE, EventBatch
from horae.ports.reader import Reader
from horae.queries.jobs import JobQueries, Overview
from horae.queries.listed import Omitted, listed_job, listed_run

SLICE = 100  # events of a batch that are loaded together
KEPT_SLICES = 16  # loaded last, shared by listeners that keep up
MARGIN = timedelta(minutes=1)  # events may be committed out of the order of their times by as much

_ID = re.compile(r"(?P<position>\d+(?:\.\d+)*)-(?P<count>\d{1,9})-(?P<at>\d{1,11})")
_RESTART = "connect again without Last-Event-ID, and read the current state of your jobs and runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventId:
    """A point in the feed: everything up to a position, and the first `count` events of the batch after it."""

    position: str
    count: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.position}-{self.count}-{int(self.at.timestamp())}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeedEvent:
    """One event; all listeners get the same object."""

    kind: EventKind
    at: datetime
    owner: str
    job_id: JobId | None  # None for an event of a run that has been deleted
    run_id: RunId | None = None
    job: Overview | None = None  # of a job event: the job as it is now; None when it has been deleted
    run: Run | None = None  # of a run event: likewise
    omitted: Omitted = ()  # what is too large for an event, and was left out of the run
    id: EventId | None = None  # None for a best-effort event, which is not stored


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a listener gets."""

    owner: str | None  # None means every owner
    kinds: frozenset[EventKind] = frozenset(EventKind)
    job_id: JobId | None = None
    since: datetime | None = None  # None means any time

    def matches(self, event: FeedEvent) -> bool:
        """Whether the listener gets this event."""
        wanted = self.job_id in (None, event.job_id) and event.kind in self.kinds and self.owner in (None, event.owner)
        return wanted and (self.since is None or event.at >= self.since)


def sort_key(position: str) -> tuple[int, ...]:
    """Return a position as numbers that sort in the order of the events."""
    return tuple(map(int, position.split(".")))


def read_event_id(text: str, *, like: str, now: datetime) -> EventId:
    """Parse the id that a listener resumes after; raises Gone when later events may have expired.

    `like` is any position of this store: positions of other stores have another shape, or lie in the future.
    """
    found = _ID.fullmatch(text)
    if found is None or len(text) > 100 or len(sort_key(found["position"])) != len(sort_key(like)):
        raise Gone(f"the event id {text[:100]!r} is not one that this server gave out; {_RESTART}")
    at = datetime.fromtimestamp(int(found["at"]), UTC)
    if at > now + MARGIN:
        raise Gone(f"the event id {text!r} is from the future, so it was given out by another server; {_RESTART}")
    if at < now - EVENT_LIFE + MARGIN:
        raise Gone(f"events are kept for {EVENT_LIFE // timedelta(hours=1)} h, and {text!r} is older; {_RESTART}")
    return EventId(position=found["position"], count=int(found["count"]), at=at)


class EventLoader:
    """Loads the events of batches slice by slice; listeners at the same place share one read."""

    def __init__(self, store: Reader, queries: JobQueries) -> None:
        self._store = store
        self._queries = queries
        self._slices: OrderedDict[tuple[str, str, int], asyncio.Task[list[FeedEvent]]] = OrderedDict()

    async def load(self, batch: EventBatch, first: int, before: str) -> list[FeedEvent]:
        """Return up to SLICE events of a batch from number `first` on; `before` is the position before the batch."""
        key = (before, batch.position, first)
        loading = self._slices.get(key)
        if loading is None:
            loading = self._slices[key] = asyncio.create_task(self._load(batch, first, before))
            loading.add_done_callback(lambda done: self._loaded(key, done))
            while len(self._slices) > KEPT_SLICES:
                self._slices.popitem(last=False)
        return await asyncio.shield(loading)  # when this listener disconnects others may still wait for it

    def forget(self) -> None:
        """Drop what was loaded, because nobody listens any more."""
        self._slices.clear()

    def _loaded(self, key: tuple[str, str, int], loading: asyncio.Task[list[FeedEvent]]) -> None:
        """Forget a failed read, so that the next listener retries it."""
        if loading.cancelled() or loading.exception() is not None:
            self._slices.pop(key, None)

    async def _load(self, batch: EventBatch, first: int, before: str) -> list[FeedEvent]:
        subjects = batch.subjects[first : first + SLICE]
        ids = [_event_id(batch, place, before) for place in range(first, first + len(subjects))]
        of_jobs = batch.kind.startswith("job.")
        return await (self._job_events if of_jobs else self._run_events)(batch, subjects, ids)

    async def _job_events(self, batch: EventBatch, subjects: Sequence[str], ids: Sequence[EventId]) -> list[FeedEvent]:
        jobs = await self._store.jobs([JobId(subject) for subject in subjects])
        found = await self._queries.overviews_of(list(jobs.values()))
        overviews = dict(zip(jobs, map(_light, found), strict=True))
        return [
            FeedEvent(
                kind=batch.kind, at=batch.at, owner=batch.owner, job_id=job_id, job=overviews.get(job_id), id=ident
            )
            for job_id, ident in zip(map(JobId, subjects), ids, strict=True)
        ]

    async def _run_events(self, batch: EventBatch, subjects: Sequence[str], ids: Sequence[EventId]) -> list[FeedEvent]:
        runs = await self._store.runs([RunId(subject) for subject in subjects], ended=True)
        listed = {run_id: listed_run(run) for run_id, run in runs.items()}
        return [
            FeedEvent(
                kind=batch.kind,
                at=batch.at,
                owner=batch.owner,
                job_id=None if run is None else run.job_id,
                run_id=run_id,
                run=run,
                omitted=omitted,
                id=ident,
            )
            for run_id, ident in zip(map(RunId, subjects), ids, strict=True)
            for run, omitted in (listed.get(run_id, _DELETED),)
        ]


_DELETED: tuple[None, Omitted] = (None, ())


def _light(overview: Overview) -> Overview:
    """Return an overview without what its event does not show, because many are kept at a time."""
    last_run = None if overview.last_run is None else listed_run(overview.last_run)[0]
    return replace(overview, job=listed_job(overview.job), last_run=last_run)


def _event_id(batch: EventBatch, place: int, before: str) -> EventId:
    """Return the id of an event of a batch; that of the last is the position of the batch itself."""
    if place + 1 == len(batch.subjects):
        return EventId(position=batch.position, count=0, at=batch.at)
    return EventId(position=before, count=place + 1, at=batch.at)
