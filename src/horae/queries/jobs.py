"""Queries about jobs and runs: one by one, in pages, the times to come, and the slots of a job."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from horae.archive.reader import Archive
from horae.batcher import Batcher
from horae.core.errors import Invalid, NotFound
from horae.core.job_rules import job_of, next_run_at
from horae.core.model import Attempt, Job, JobId, JobStatus, Run, RunId
from horae.core.schedule.evaluate import jittered
from horae.core.schedule.preview import preview
from horae.core.schedule.timestamps import TICK, parse_timestamp, rfc3339
from horae.core.values import Value, replace
from horae.jobs.params import Parameters
from horae.lookup import find_job, get_job
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.reader import JobFilter, Listing, Reader, RunFilter
from horae.queries.ledger import SlotEntry, one_shot_entries, slot_entries
from horae.queries.listed import listed_params
from horae.run_logs import read_log

SNAPSHOT_TRIES = 5
LATEST = datetime.max.replace(tzinfo=UTC)
MAX_LOOK = 6_000  # rows that a page looks at; it may be empty, and its cursor continues the search
MAX_AHEAD = timedelta(days=3653)  # how far into the future slots are listed


class Overview(Value, frozen=True, kw_only=True):
    """A job with what answers about it show beside its definition."""

    job: Job
    params: str | None  # None when they are too large for a list
    last_run: Run | None  # the latest run that is already due
    next_run_at: datetime | None
    read_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingRun:
    """A slot in the future and the time at which its run will be due."""

    slot: datetime
    due_at: datetime  # the slot plus its jitter
    note: str | None = None


class JobQueries:
    """Reads jobs and runs; look-ups of single ones that come at the same time are batched.

    `owner` None means every owner; otherwise jobs and runs of other owners raise NotFound.
    """

    def __init__(
        self,
        *,
        store: Reader,
        blobs: Blobs,
        parameters: Parameters,
        clock: Clock,
        archive: Archive | None = None,
    ) -> None:
        self._store = store
        self._archive = archive
        self._blobs = blobs
        self._parameters = parameters
        self._clock = clock
        self._jobs: Batcher[JobId, Overview | None] = Batcher(self._read_jobs)
        self._runs: Batcher[RunId, tuple[Run, Sequence[Attempt]] | None] = Batcher(self._read_runs)

    # --- jobs

    async def job(self, job_id: JobId, *, owner: str | None) -> Overview:
        """Return a job with its parameters and its last run."""
        found = await self.status(job_id, owner=owner)
        if found.params is not None:
            return found
        return replace(found, params=await self._parameters.of(found.job.spec))

    async def status(self, job_id: JobId, *, owner: str | None) -> Overview:
        """Return a job with its last run, without large parameters."""
        found = await self._jobs.add(job_id)
        if found is None or owner not in (None, found.job.owner):
            raise NotFound("job", f"job_{job_id}")
        return found

    async def _read_jobs(self, job_ids: Sequence[JobId]) -> list[Overview | None]:
        now, wanted = self._clock.now(), dict.fromkeys(job_ids)
        last_runs = await self._store.last_runs([*wanted], now=now)
        # A one-shot is stored as its run. Unless it ran again that is its last run, and needs no second query.
        jobs = {job_id: job_of(run) for job_id, run in last_runs.items() if run.one_shot}
        if others := [job_id for job_id in wanted if job_id not in jobs]:
            jobs |= await self._store.jobs(others)
        found = {job_id: _listed_overview(job, last_runs.get(job_id), now) for job_id, job in jobs.items()}
        return [found.get(job_id) for job_id in job_ids]

    async def overview_of(self, job: Job) -> Overview:
        """Return the overview of a job that the caller has just read or written."""
        now = self._clock.now()
        last_run = (await self._store.last_runs([job.id], now=now)).get(job.id)
        return _overview(job, last_run, await self._parameters.of(job.spec), now)

    async def overview_of_new(self, job: Job) -> Overview:
        """Return the overview of a job that was just created, without reading the store."""
        now = self._clock.now()
        last_run = job.run if job.run is not None and job.run.due_at <= now else None
        return _overview(job, last_run, await self._parameters.of(job.spec), now)

    async def jobs(self, which: JobFilter, *, cursor: str | None, limit: int, reads: int = 1) -> Listing[Overview]:
        """Return a page of jobs, without large parameters; it may be a part of one that takes several reads."""
        page = await self._store.list_jobs(which, cursor=cursor, limit=limit, look=MAX_LOOK // reads)
        return Listing(items=await self.overviews_of(page.items), cursor=page.cursor, searched_to=page.searched_to)

    async def overviews_of(self, jobs: Sequence[Job]) -> list[Overview]:
        """Return the overviews of jobs that the caller has just read, without large parameters."""
        now = self._clock.now()
        last_runs = await self._store.last_runs([job.id for job in jobs], now=now) if jobs else {}
        return [_listed_overview(job, last_runs.get(job.id), now) for job in jobs]

    async def upcoming(self, job_id: JobId, count: int, *, owner: str | None) -> list[UpcomingRun]:
        """Return the next times at which the job will run; none while it is paused."""
        job = await get_job(self._store, job_id, owner=owner)
        now = self._clock.now()
        if job.status is not JobStatus.SCHEDULED:
            return []
        if not job.recurring:
            at = next_run_at(job, now)
            return [] if at is None or at <= now else [UpcomingRun(slot=at, due_at=at)]
        return [
            UpcomingRun(slot=fire.at, due_at=jittered(job.schedule, job.id, fire.at), note=fire.note)
            for fire in preview(job.schedule, now, count)
        ]

    # --- runs

    async def run(self, run_id: RunId, *, owner: str | None) -> tuple[Run, Sequence[Attempt]]:
        """Return a run with its attempts that did not succeed."""
        found = await self._runs.add(run_id)
        if found is None or owner not in (None, found[0].owner):
            raise NotFound("run", f"run_{run_id}")
        return found

    async def _read_runs(self, run_ids: Sequence[RunId]) -> list[tuple[Run, Sequence[Attempt]] | None]:
        runs = await self._store.runs([*dict.fromkeys(run_ids)])
        attempts = await self._store.attempts([*runs]) if runs else {}
        found = {run_id: (run, attempts.get(run_id, ())) for run_id, run in runs.items()}
        return [found.get(run_id) for run_id in run_ids]

    async def archived(self, run_id: RunId, *, owner: str | None) -> tuple[Run, Sequence[Attempt]] | None:
        """Return a run that is only in the archive, with its attempts that did not succeed and its parameters whole."""
        found = None if self._archive is None else await self._archive.find(run_id)
        return None if found is None or owner not in (None, found.run.owner) else (found.run, found.attempts)

    async def runs(self, which: RunFilter, *, cursor: str | None, limit: int, reads: int = 1) -> Listing[Run]:
        """Return a page of runs, the latest `due_at` first; it may be a part of one that takes several reads."""
        return await self._store.list_runs(which, cursor=cursor, limit=limit, look=MAX_LOOK // reads)

    async def params_of(self, run: Run) -> str:
        """Return the parameters of a run as JSON text, whole."""
        return await self._parameters.of(run.spec)

    async def last_run(self, job_id: JobId, *, owner: str | None) -> Run:
        """Return the latest run of a job that is already due; raises NotFound when there is none yet."""
        last_run = (await self.status(job_id, owner=owner)).last_run
        if last_run is None:
            raise NotFound("run yet of job", f"job_{job_id}")
        return last_run

    def logs(self, run_id: RunId) -> AsyncIterator[str]:
        """Yield the log of a run, attempt after attempt."""
        return read_log(self._blobs, run_id)

    # --- the ledger

    async def slots(
        self,
        job_id: JobId,
        *,
        owner: str | None,
        start: datetime | None,
        end: datetime | None,
        cursor: str | None,
        limit: int,
    ) -> Listing[SlotEntry]:
        """Return a page of the ledger: the slots from `start` (default: creation) to `end` (default: now)."""
        after = None if cursor is None else _position(cursor) + TICK
        for _ in range(SNAPSHOT_TRIES):
            job = await get_job(self._store, job_id, owner=owner)
            now = self._clock.now()
            _refuse_far(job, end, now)
            begin = max(start or _begin(job), after or _begin(job))
            found, complete = await self._slots(job, begin, end or now, now, limit + 1)
            if await find_job(self._store, job_id, owner=owner) == job:
                break  # the job was not fired or changed between the two reads: no slot is missing or listed twice
        return _page(found, limit, complete=complete)

    async def _slots(
        self, job: Job, start: datetime, end: datetime, now: datetime, limit: int
    ) -> tuple[Sequence[SlotEntry], bool]:
        """Return the entries of a range, and whether they cover all of it."""
        if job.run is not None:
            return one_shot_entries([job.run] if start <= job.run.due_at <= end else []), True
        ledger = await self._store.ledger(job.id, start=start, end=end, limit=limit, look=limit)
        within = [skip for skip in ledger.skips if skip.start >= start]
        known_to = min(
            ledger.runs[-1].slot or end if len(ledger.runs) == limit else LATEST,
            within[-1].start - TICK if len(within) == limit else LATEST,
        )
        if known_to is LATEST:
            return slot_entries(job, ledger, start=start, end=end, now=now), True
        found = slot_entries(job, ledger, start=start, end=known_to, now=now)
        return [entry for entry in found if entry.end <= known_to], False


def _refuse_far(job: Job, end: datetime | None, now: datetime) -> None:
    """Raise Invalid when `end` is so far ahead that counting the slots would take seconds."""
    if job.recurring and end is not None and end - now > MAX_AHEAD:
        raise Invalid(f"slots are listed up to {MAX_AHEAD.days} days ahead", pointer="/end")


def _listed_overview(job: Job, last_run: Run | None, now: datetime) -> Overview:
    return _overview(job, last_run, listed_params(job.spec), now)


def _overview(job: Job, last_run: Run | None, params: str | None, now: datetime) -> Overview:
    return Overview(
        job=job,
        params=params,
        last_run=last_run,
        next_run_at=next_run_at(job, now),
        read_at=now,
    )


def _begin(job: Job) -> datetime:
    return job.created_at if job.run is None else min(job.created_at, job.run.due_at)


def _page(found: Sequence[SlotEntry], limit: int, *, complete: bool) -> Listing[SlotEntry]:
    """Return the first entries; those with the same end stay on one page, for that end is the cursor."""
    size = limit
    while size < len(found) and found[size].end == found[size - 1].end:
        size += 1
    items = found[:size]
    more = size < len(found) or not complete
    return Listing(items=items, cursor=rfc3339(items[-1].end) if more and items else None)


def _position(cursor: str) -> datetime:
    try:
        return parse_timestamp(cursor)
    except Invalid as exc:
        raise Invalid(
            "the cursor is not one that this server gave out; begin again without it", pointer="/cursor"
        ) from exc
