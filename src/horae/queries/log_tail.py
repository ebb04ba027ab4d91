"""Reads a log while it is written, from before the run starts until it has ended."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.errors import Gone
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, JobStatus, Run, RunId
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.reader import Reader
from horae.queries.jobs import Inspection
from horae.run_logs import PREFIX

POLL_SECONDS = 0.25
IDLE_SECONDS = 1.0  # while the run is not due yet
LAST_LINES = timedelta(seconds=0.5)  # the end of a run may be known before its last lines are kept
CHUNKS = 8  # read at a time

_PLACE = re.compile(r"[0-9a-f]{32}/\d{8}/\d{6}")

Find = Callable[[], Awaitable[tuple[Run | None, bool]]]  # the run, if there is one already, and whether to wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole lines of a log, and where they are."""

    place: str
    text: str


@dataclass
class Follower:
    """One who follows a log."""

    find: Find
    blobs: Blobs
    clock: Clock
    after: str = ""  # the place of the last chunk that was told
    run: Run | None = None
    over: bool = False
    seconds: float = field(default=IDLE_SECONDS)  # to wait before the next look

    async def look(self) -> list[Chunk]:
        """What was written since the last look; `over` when there will be no more."""
        run, waits = await self.find()
        now = self.clock.now()
        self.run = run
        chunks = [] if run is None else await self._read(run.id)
        self.seconds = 0.0 if len(chunks) == CHUNKS else _interval(run, now)
        self.over = not chunks and (not waits if run is None else _complete(run, now))
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


class Following:
    """Follows logs of runs, and of the latest runs of jobs."""

    def __init__(self, store: Reader, inspection: Inspection, blobs: Blobs, clock: Clock) -> None:
        self._store = store
        self._inspection = inspection
        self._blobs = blobs
        self._clock = clock

    def run(self, run_id: RunId, *, after: str | None) -> Follower:
        """The log of a run, from a place on; raises Gone for a place that is not in it."""
        if after is not None and _run_at(after) != run_id:
            raise _elsewhere(after)
        return Follower(find=self._finding(run_id), blobs=self._blobs, clock=self._clock, after=after or "")

    async def job(self, job_id: JobId, *, after: str | None) -> Follower:
        """The log of the latest run of a job that is due, or of its first if there is none yet.

        Whoever comes back with a place follows the run that it is in.
        """
        if after is None:
            return Follower(find=self._finding_latest(job_id), blobs=self._blobs, clock=self._clock)
        run = await self._store.run(_run_at(after), owner=None)
        if run is None or run.job_id != job_id:
            raise _elsewhere(after)
        return Follower(find=self._finding(run.id), blobs=self._blobs, clock=self._clock, after=after)

    def _finding(self, run_id: RunId) -> Find:
        async def find() -> tuple[Run | None, bool]:
            return await self._store.run(run_id, owner=None), False

        return find

    def _finding_latest(self, job_id: JobId) -> Find:
        """The latest run at the first look that finds one is followed to its end."""
        chosen: list[RunId] = []

        async def find() -> tuple[Run | None, bool]:
            if chosen:
                return await self._store.run(chosen[0], owner=None), False
            overview = await self._inspection.job(job_id, owner=None)
            if overview.last_run is not None:
                chosen.append(overview.last_run.id)
            return overview.last_run, overview.job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED)

        return find


def _interval(run: Run | None, now: datetime) -> float:
    if run is None:
        return IDLE_SECONDS
    return POLL_SECONDS if run.wake_at <= now + timedelta(seconds=IDLE_SECONDS) else IDLE_SECONDS


def _complete(run: Run, now: datetime) -> bool:
    return run.state in FINAL and (run.finished_at is None or now >= run.finished_at + LAST_LINES)


def _run_at(place: str) -> RunId:
    if not _PLACE.fullmatch(place):
        raise _elsewhere(place)
    return RunId(place.partition("/")[0])


def _elsewhere(place: str) -> Gone:
    return Gone(f"{place[:100]!r} is no place in this log; follow it again without Last-Event-ID")
