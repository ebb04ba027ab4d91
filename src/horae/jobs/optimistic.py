"""How an act on a job is done: read it, change it, and begin anew when somebody came between."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from horae.core.decisions.firing import MAX_UNSTARTED
from horae.core.effects import Planned, change_job, rewound
from horae.core.errors import Conflict, NotFound
from horae.core.events import EventKind
from horae.core.lifecycle import WAITING
from horae.core.model import Job, JobId, JobStatus, Reason, Run, State, Trigger
from horae.core.values import Value, replace
from horae.jobs.lookup import find_job
from horae.ports.reader import Reader, RunFilter
from horae.ports.store import Store

_FAR = datetime.max.replace(tzinfo=UTC)
TRIES = 10  # how often an act is begun anew because somebody else moved the job meanwhile

Change = Callable[[Job], Awaitable[Job | None]]


async def find(store: Reader, job_id: JobId, *, owner: str | None) -> Job:
    """The job; raises NotFound also for another owner's. `owner` None reaches every owner's jobs."""
    job = await find_job(store, job_id, owner=owner)
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


class Written(Value, frozen=True, kw_only=True):
    """A new version of a job, and what had been planned of the one before."""

    job: Job
    planned: Planned


async def write_change(
    store: Store,
    before: Job,
    after: Job,
    *,
    retract_after: datetime | None,
    rewind: bool = False,
    stop: Reason | None = None,
    event: EventKind | None,
) -> Written | None:
    """Write a new version of a recurring job; None when it, or a run of it, moved meanwhile.

    What is planned later than `retract_after` is taken back: waiting runs are deleted, and the nodes of those that are
    held and not started get the stop request `stop`. With `rewind` the job is set back to the first slot that is open
    again, instead of what `after` says.
    """
    planned = Planned() if retract_after is None else await _planned(store, before.id, retract_after)
    if rewind:
        after = rewound(replace(after, next_fire_at=before.next_fire_at), planned)
    [refusal] = await store.apply([change_job(before, after, planned, stop=stop, event=event)])
    return Written(job=after, planned=planned) if refusal is None else None


async def _planned(store: Store, job_id: JobId, after: datetime) -> Planned:
    waiting = RunFilter(job_id=job_id, states=WAITING | {State.CLAIMED}, start_at=after)
    runs = await store.list_runs(waiting, cursor=None, limit=4 * MAX_UNSTARTED)
    ledger = await store.ledger(job_id, start=after, end=_FAR, limit=1)
    of_schedule = [run for run in runs.items if run.trigger is Trigger.SCHEDULE]
    return Planned.among(of_schedule, ledger.skips, after=after)
