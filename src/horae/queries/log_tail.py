"""Follows the log of a run while it is being written, from before its start to its end."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.batcher import Batcher
from horae.core.errors import Gone
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, JobStatus, Run, RunId, State
from horae.lookup import find_run
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.reader import Reader
from horae.queries.jobs import JobQueries
from horae.run_logs import PREFIX

POLL_SECONDS = 0.25
IDLE_SECONDS = 1.0  # while the run is not due yet, or has long written nothing
GROWTH = 0.1  # the interval is this share of the time since the last chunk
LAST_LINES = timedelta(seconds=0.5)  # the end of a run may be stored before the last lines of its log
CHUNKS = 8  # read in one poll

_PLACE = re.compile(r"[0-9a-f]{32}/\d{8}/\d{6}")

FindRun = Callable[[], Awaitable[tuple[Run | None, bool]]]  # the run, and while there is none whether to wait for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole lines of a log, and their place in it."""

    place: str
    text: str


@dataclass
class LogTail:
    """Reads the new chunks of one log, poll by poll."""

    find: FindRun
    blobs: Blobs
    clock: Clock
    after: str = ""  # the place of the last chunk that was read
    run: Run | None = None
    ended: bool = False
    seconds: float = IDLE_SECONDS  # to wait before the next poll
    chunk_at: datetime | None = None  # when a chunk was last read, or the first poll

    async def poll(self) -> list[Chunk]:
        """Return the chunks since the last poll; sets `ended` when no more will come."""
        run, expected = await self.find()
        now = self.clock.now()
        self.run = run
        chunks = [] if run is None or _never_started(run) else await self._read(run.id)
        self.chunk_at = now if chunks or self.chunk_at is None else self.chunk_at
        self.seconds = 0.0 if len(chunks) == CHUNKS else _interval(run, now, now - self.chunk_at)
        self.ended = not chunks and (not expected if run is None else _complete(run, now))
        return chunks

    async def _read(self, run_id: RunId) -> list[Chunk]:
        prefix = f"{PREFIX}{run_id}/"
        found = await self.blobs.under(prefix, after=f"{PREFIX}{self.after}" if self.after else "", limit=CHUNKS)
        chunks = [
            Chunk(place=key.removeprefix(PREFIX), text=data.decode("utf-8", "replace").rstrip("\n"))
            for key, data in found
        ]
        self.after = chunks[-1].place if chunks else self.after
        return chunks


class LogTails:
    """Opens tails of the logs of runs, and of the latest runs of jobs."""

    def __init__(self, store: Reader, queries: JobQueries, blobs: Blobs, clock: Clock) -> None:
        self._store = store
        self._queries = queries
        self._blobs = blobs
        self._clock = clock
        self._runs = Batcher(self._find_runs)  # there may be hundreds of followers, each of which polls

    def run(self, run_id: RunId, *, after: str | None) -> LogTail:
        """Follow the log of a run after a place in it; raises Gone for a place that is not in this log."""
        if after is not None and _run_at(after) != run_id:
            raise _no_such_place(after)
        return LogTail(find=self._find_run(run_id), blobs=self._blobs, clock=self._clock, after=after or "")

    async def job(self, job_id: JobId, *, after: str | None) -> LogTail:
        """Follow the log of the latest due run of a job, or wait for its first run.

        With `after` it is the run that this place belongs to.
        """
        if after is None:
            return LogTail(find=self._find_latest_of(job_id), blobs=self._blobs, clock=self._clock)
        run = await find_run(self._store, _run_at(after), owner=None)
        if run is None or run.job_id != job_id:
            raise _no_such_place(after)
        return LogTail(find=self._find_run(run.id), blobs=self._blobs, clock=self._clock, after=after)

    def _find_run(self, run_id: RunId) -> FindRun:
        async def find() -> tuple[Run | None, bool]:
            return await self._runs.add(run_id), False

        return find

    async def _find_runs(self, run_ids: Sequence[RunId]) -> list[Run | None]:
        found = await self._store.runs([*dict.fromkeys(run_ids)])
        return [found.get(run_id) for run_id in run_ids]

    def _find_latest_of(self, job_id: JobId) -> FindRun:
        """Choose the latest run when there is one for the first time, and stay with it."""
        chosen: list[RunId] = []

        async def find() -> tuple[Run | None, bool]:
            if chosen:
                return await self._runs.add(chosen[0]), False
            overview = await self._queries.job(job_id, owner=None)
            if overview.last_run is not None:
                chosen.append(overview.last_run.id)
            return overview.last_run, overview.job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED)

        return find


def _interval(run: Run | None, now: datetime, silence: timedelta) -> float:
    if run is None or run.wake_at > now + timedelta(seconds=IDLE_SECONDS):
        return IDLE_SECONDS
    return min(max(silence.total_seconds() * GROWTH, POLL_SECONDS), IDLE_SECONDS)


def _never_started(run: Run) -> bool:
    """Whether no attempt can have written anything yet."""
    return run.state is State.SCHEDULED and run.attempt == 0 and run.crashes == 0


def _complete(run: Run, now: datetime) -> bool:
    return run.state in FINAL and (run.finished_at is None or now >= run.finished_at + LAST_LINES)


def _run_at(place: str) -> RunId:
    if not _PLACE.fullmatch(place):
        raise _no_such_place(place)
    return RunId(place.partition("/")[0])


def _no_such_place(place: str) -> Gone:
    return Gone(f"{place[:100]!r} is not a place in this log; follow it again without Last-Event-ID")
