"""How an act on a job is done: read it, change it, and begin anew when somebody came between."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from horae.core.errors import Conflict, NotFound
from horae.core.lifecycle import WAITING
from horae.core.model import Job, JobId, JobStatus, Run
from horae.core.values import replace
from horae.ports.reader import Reader

TRIES = 10  # how often an act is begun anew because somebody else moved the job meanwhile

Change = Callable[[Job], Awaitable[Job | None]]


async def find(store: Reader, job_id: JobId, *, owner: str | None) -> Job:
    """The job; raises NotFound also for another owner's. `owner` None reaches every owner's jobs."""
    job = await store.job(job_id, owner=owner)
    if job is None:
        raise NotFound("job", f"job_{job_id}")
    return job


async def act(store: Reader, job_id: JobId, owner: str | None, change: Change) -> Job:
    """Read and change until nobody comes between; `change` answers None when it lost a race."""
    for _ in range(TRIES):
        changed = await change(await find(store, job_id, owner=owner))
        if changed is not None:
            return changed
    raise always_changing(f"job_{job_id}")


def always_changing(job: str) -> Conflict:
    """What to say when every try lost its race."""
    return Conflict(f"{job} is being changed by others all the time; try again")


def next_revision(job: Job, now: datetime) -> Job:
    """The job as the base of its next version."""
    return replace(job, revision=job.revision + 1, updated_at=now)


def refuse_over(job: Job) -> None:
    """Raise Conflict when the job is cancelled or finished."""
    if job.status in (JobStatus.CANCELLED, JobStatus.FINISHED):
        raise over(job.id, job.status)


def over(job_id: JobId, status: JobStatus) -> Conflict:
    """What to say when the job is cancelled or finished."""
    return Conflict(f"job_{job_id} is {status}; it can be read, but not changed any more")


def refuse_begun(run: Run) -> None:
    """Raise Conflict when a one-shot no longer waits for its first attempt."""
    if run.state not in WAITING or run.attempt > 0:
        raise Conflict(f"job_{run.job_id} runs once and has already begun; it can be cancelled, but not changed")
