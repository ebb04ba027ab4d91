"""Look-ups of jobs, runs and records by their ids and keys; the only place that hides what belongs to another owner."""

from collections.abc import Sequence
from datetime import datetime

from horae.core.effects import OVER
from horae.core.errors import NotFound
from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobId, Run, RunId
from horae.core.records import IdempotencyRecord, KeyHolder, QueueSettings
from horae.ports.reader import Reader


async def find_job(reader: Reader, job_id: JobId, *, owner: str | None) -> Job | None:
    """Return the job, unless it is another owner's; `owner` None reaches the jobs of all."""
    job = (await reader.jobs([job_id])).get(job_id)
    return job if job is not None and owner in (None, job.owner) else None


async def find_run(reader: Reader, run_id: RunId, *, owner: str | None) -> Run | None:
    """Return the run, unless it is another owner's; `owner` None reaches the runs of all."""
    run = (await reader.runs([run_id])).get(run_id)
    return run if run is not None and owner in (None, run.owner) else None


async def find_jobs(reader: Reader, job_ids: Sequence[JobId], *, owner: str | None) -> list[Job]:
    """Return those of the jobs that exist and are not another owner's; `owner` None reaches the jobs of all."""
    return [job for job in (await reader.jobs(job_ids)).values() if owner in (None, job.owner)]


async def find_runs(reader: Reader, run_ids: Sequence[RunId], *, owner: str | None) -> list[Run]:
    """Return those of the runs that exist and are not another owner's; `owner` None reaches the runs of all."""
    return [run for run in (await reader.runs(run_ids)).values() if owner in (None, run.owner)]


async def get_job(reader: Reader, job_id: JobId, *, owner: str | None) -> Job:
    """Return the job; raises NotFound also for a job of another owner."""
    job = await find_job(reader, job_id, owner=owner)
    if job is None:
        raise NotFound("job", f"job_{job_id}")
    return job


async def get_run(reader: Reader, run_id: RunId, *, owner: str | None) -> Run:
    """Return the run; raises NotFound also for a run of another owner."""
    run = await find_run(reader, run_id, owner=owner)
    if run is None:
        raise NotFound("run", f"run_{run_id}")
    return run


async def find_job_by_key(reader: Reader, owner: str, key: str) -> Job | None:
    """Return the unfinished job that holds a key."""
    for holder in await reader.records(KeyHolder, owner=owner, key=key):
        job = await find_job(reader, holder.job_id, owner=owner)
        if job is not None:
            over = job.status in OVER if job.run is None else job.run.state in FINAL
            return None if over else job  # it may have ended between the two reads
    return None


async def find_request(reader: Reader, owner: str, key: str, *, now: datetime) -> IdempotencyRecord | None:
    """Return the idempotency record of an earlier request with this key, unless it expired."""
    records = await reader.records(IdempotencyRecord, owner=owner, key=key)
    return next((record for record in records if record.is_valid(now)), None)


async def queue_settings(reader: Reader, queue: str) -> QueueSettings:
    """Return the settings of a queue, or the defaults."""
    return next(iter(await reader.records(QueueSettings, key=queue)), QueueSettings(queue=queue))
