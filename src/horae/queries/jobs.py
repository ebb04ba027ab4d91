"""What users look at: jobs with their last run, runs with their attempts, the times to come, the ledger, logs."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.errors import Invalid, NotFound
from horae.core.job_rules import job_of, next_run_at
from horae.core.model import Attempt, Job, JobId, JobStatus, Node, Run, RunId
from horae.core.schedule.evaluate import jittered
from horae.core.schedule.preview import Fire, preview
from horae.core.schedule.timestamps import parse_timestamp, rfc3339
from horae.core.values import Value, replace
from horae.jobs.group_commit import Group
from horae.jobs.params import Parameters
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.reader import JobFilter, Listing, Reader, RunFilter
from horae.queries.ledger import Entry, entries, of_one_shot
from horae.run_logs import read_log

SNAPSHOT_TRIES = 5
MAX_AHEAD = timedelta(days=3653)  # of slots that are told
_TICK = timedelta(microseconds=1)


class Overview(Value, frozen=True, kw_only=True):
    """A job as it is shown."""

    job: Job
    params: str | None  # None where they are large and were not asked for
    last_run: Run | None  # the latest that is already due
    next_run_at: datetime | None
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A slot to come."""

    slot: datetime
    due_at: datetime  # the slot, later by its jitter
    note: str | None = None


class Inspection:
    """Reads of jobs and runs; nothing here changes anything. `owner` None reaches every owner's.

    Those that are asked for one by one at the same time are read together.
    """

    def __init__(self, *, store: Reader, blobs: Blobs, parameters: Parameters, clock: Clock) -> None:
        self._store = store
        self._blobs = blobs
        self._parameters = parameters
        self._clock = clock
        self._jobs: Group[JobId, Overview | None] = Group(self._read_jobs)
        self._runs: Group[RunId, tuple[Run, Sequence[Attempt]] | None] = Group(self._read_runs)

    # --- jobs

    async def job(self, job_id: JobId, *, owner: str | None) -> Overview:
        """One job with its parameters and its last run."""
        found = await self.glance(job_id, owner=owner)
        if found.params is not None:
            return found
        return replace(found, params=await self._parameters.of(found.job.spec))

    async def glance(self, job_id: JobId, *, owner: str | None) -> Overview:
        """One job with its last run; large parameters are left out."""
        found = await self._jobs.add(job_id)
        if found is None or owner not in (None, found.job.owner):
            raise NotFound("job", f"job_{job_id}")
        return found

    async def _read_jobs(self, job_ids: Sequence[JobId]) -> list[Overview | None]:
        """The run of a one-shot is its latest run unless it ran again, so that most are read in one look-up."""
        now, asked = self._clock.now(), dict.fromkeys(job_ids)
        last_runs = await self._store.last_runs([*asked], now=now)
        jobs = {job_id: job_of(run) for job_id, run in last_runs.items() if run.one_shot}
        if others := [job_id for job_id in asked if job_id not in jobs]:
            jobs |= await self._store.jobs(others)
        found = {job_id: _glimpse(job, last_runs.get(job_id), now) for job_id, job in jobs.items()}
        return [found.get(job_id) for job_id in job_ids]

    async def overview(self, job: Job) -> Overview:
        """A job that was just read or written, as it is shown."""
        now = self._clock.now()
        last_run = (await self._store.last_runs([job.id], now=now)).get(job.id)
        return _overview(job, last_run, await self._parameters.of(job.spec), now)

    async def created(self, job: Job) -> Overview:
        """A job that was just created: nothing has to be read to show it."""
        now = self._clock.now()
        last_run = job.run if job.run is not None and job.run.due_at <= now else None
        return _overview(job, last_run, await self._parameters.of(job.spec), now)

    async def jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Overview]:
        """A page of jobs; large parameters are left out."""
        page = await self._store.list_jobs(which, cursor=cursor, limit=limit)
        return Listing(items=await self.overviews(page.items), cursor=page.cursor)

    async def overviews(self, jobs: Sequence[Job]) -> list[Overview]:
        """Jobs that were just read, as they are shown; large parameters are left out."""
        now = self._clock.now()
        last_runs = await self._store.last_runs([job.id for job in jobs], now=now) if jobs else {}
        return [_glimpse(job, last_runs.get(job.id), now) for job in jobs]

    async def upcoming(self, job_id: JobId, count: int, *, owner: str | None) -> list[Upcoming]:
        """The next times at which the job will run; none while it is paused, for then it will not."""
        job = await self._find_job(job_id, owner)
        now = self._clock.now()
        if job.status is not JobStatus.SCHEDULED:
            return []
        if not job.recurring:
            at = next_run_at(job, now)
            return [] if at is None or at <= now else [Upcoming(slot=at, due_at=at)]
        return [_upcoming(job, fire) for fire in preview(job.schedule, now, count)]

    # --- runs

    async def run(self, run_id: RunId, *, owner: str | None) -> tuple[Run, Sequence[Attempt]]:
        """A run and its attempts that did not succeed."""
        found = await self._runs.add(run_id)
        if found is None or owner not in (None, found[0].owner):
            raise NotFound("run", f"run_{run_id}")
        return found

    async def _read_runs(self, run_ids: Sequence[RunId]) -> list[tuple[Run, Sequence[Attempt]] | None]:
        runs = await self._store.runs([*dict.fromkeys(run_ids)])
        attempts = await self._store.attempts_of([*runs]) if runs else {}
        found = {run_id: (run, attempts.get(run_id, ())) for run_id, run in runs.items()}
        return [found.get(run_id) for run_id in run_ids]

    async def runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """A page of runs, by due time, latest first."""
        return await self._store.list_runs(which, cursor=cursor, limit=limit)

    async def last_run(self, job_id: JobId, *, owner: str | None) -> Run:
        """The latest run of a job that is already due; raises NotFound when there is none yet."""
        overview = await self.glance(job_id, owner=owner)
        if overview.last_run is None:
            raise NotFound("run yet of job", f"job_{job_id}")
        return overview.last_run

    def logs(self, run_id: RunId) -> AsyncIterator[str]:
        """What the attempts of a run wrote, in order."""
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
    ) -> Listing[Entry]:
        """What became of the slots from `start` (creation) to `end` (now)."""
        after = None if cursor is None else _position(cursor) + _TICK
        for _ in range(SNAPSHOT_TRIES):
            job = await self._find_job(job_id, owner)
            now = self._clock.now()
            _refuse_far(job, end, now)
            begin = max(start or _begin(job), after or _begin(job))
            found, complete = await self._slots(job, begin, end or now, now, limit + 1)
            if await self._store.job(job_id, owner=owner) == job:
                break  # nobody fired or changed it between the two reads, so no slot is missing or told twice
        return _page(found, limit, complete=complete)

    async def _slots(
        self, job: Job, start: datetime, end: datetime, now: datetime, limit: int
    ) -> tuple[Sequence[Entry], bool]:
        """The entries of a range, and whether they are all of it."""
        if job.run is not None:
            return of_one_shot([job.run] if start <= job.run.due_at <= end else []), True
        ledger = await self._store.ledger(job.id, start=start, end=end, limit=limit)
        if len(ledger.runs) < limit:
            return entries(job, ledger, start=start, end=end, now=now), True
        known_to = ledger.runs[-1].slot or end
        found = entries(job, ledger, start=start, end=known_to, now=now)
        return [entry for entry in found if entry.end <= known_to], False

    # --- nodes

    async def workers(self) -> list[Node]:
        """The registered nodes that run tasks."""
        return [node for node in await self._store.nodes() if "worker" in node.roles]

    async def _find_job(self, job_id: JobId, owner: str | None) -> Job:
        job = await self._store.job(job_id, owner=owner)
        if job is None:
            raise NotFound("job", f"job_{job_id}")
        return job


def _refuse_far(job: Job, end: datetime | None, now: datetime) -> None:
    """Raise Invalid for slots so far ahead that to count them takes seconds."""
    if job.recurring and end is not None and end - now > MAX_AHEAD:
        raise Invalid(f"slots are told up to {MAX_AHEAD.days} days ahead", pointer="/end")


def _glimpse(job: Job, last_run: Run | None, now: datetime) -> Overview:
    """A job without its parameters where they are large."""
    return _overview(job, last_run, None if job.spec.params_blob else job.spec.params, now)


def _overview(job: Job, last_run: Run | None, params: str | None, now: datetime) -> Overview:
    return Overview(
        job=job,
        params=params,
        last_run=last_run,
        next_run_at=next_run_at(job, now),
        seen_at=now,
    )


def _begin(job: Job) -> datetime:
    return job.created_at if job.run is None else min(job.created_at, job.run.due_at)


def _page(found: Sequence[Entry], limit: int, *, complete: bool) -> Listing[Entry]:
    """The first entries; those that end together stay together, for the cursor is the end of the last."""
    size = limit
    while size < len(found) and found[size].end == found[size - 1].end:
        size += 1
    items = found[:size]
    more = size < len(found) or not complete
    return Listing(items=items, cursor=rfc3339(items[-1].end) if more and items else None)


def _upcoming(job: Job, fire: Fire) -> Upcoming:
    return Upcoming(slot=fire.at, due_at=jittered(job.schedule, job.id, fire.at), note=fire.note)


def _position(cursor: str) -> datetime:
    try:
        return parse_timestamp(cursor)
    except Invalid as exc:
        raise Invalid(
            "the cursor is not one that this server gave out; begin again without it", pointer="/cursor"
        ) from exc
