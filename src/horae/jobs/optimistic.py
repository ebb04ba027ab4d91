"""Optimistic updates: read a job, change it, retry on conflict."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from horae.core.decisions.firing import MAX_UNSTARTED, gap_skips
from horae.core.effects import OVER, Planned, change_job, rewound
from horae.core.errors import Conflict
from horae.core.events import EventKind
from horae.core.lifecycle import WAITING
from horae.core.model import Job, JobId, JobStatus, Reason, Run, Skip, State, Trigger
from horae.core.records import ScheduleTrail
from horae.core.values import replace
from horae.lookup import get_job
from horae.ports.clock import Clock
from horae.ports.reader import Reader, RunFilter
from horae.ports.store import Store

_FAR = datetime.max.replace(tzinfo=UTC)
TRIES = 10  # of an update that conflicts with others

Change = Callable[[Job], Awaitable[Job | None]]


async def update(store: Reader, job_id: JobId, owner: str | None, change: Change) -> Job:
    """Read the job and `change` it; retry while `change` returns None because of a conflict."""
    for _ in range(TRIES):
        changed = await change(await get_job(store, job_id, owner=owner))
        if changed is not None:
            return changed
    raise always_changing(f"job_{job_id}")


def always_changing(subject: str) -> Conflict:
    """Return the error for an update that conflicted at every try."""
    return Conflict(f"{subject} is being changed by others all the time; try again")


def next_revision(job: Job, now: datetime) -> Job:
    """Return the job with the number and time of its next version."""
    return replace(job, revision=job.revision + 1, updated_at=now)


def refuse_ended(job: Job) -> None:
    """Raise Conflict when the job is cancelled or finished."""
    if job.status in OVER:
        raise job_ended(job.id, job.status)


def refuse_cancelled(job: Job) -> None:
    """Raise Conflict when the job is cancelled; one that is finished can still run again."""
    if job.status is JobStatus.CANCELLED:
        raise job_ended(job.id, job.status)


def job_ended(job_id: JobId, status: JobStatus) -> Conflict:
    """Return the error for a job that is cancelled or finished."""
    return Conflict(f"job_{job_id} is {status}; it can be read, but not changed any more")


def refuse_started(run: Run) -> None:
    """Raise Conflict unless a one-shot still waits for its first attempt."""
    if run.state not in WAITING or run.attempt > 0:
        raise Conflict(f"job_{run.job_id} runs once and has already begun; it can be cancelled, but not changed")


async def write_change(
    store: Store,
    clock: Clock,
    before: Job,
    after: Job,
    *,
    retract_after: datetime | None,
    rewind: bool = False,
    stop: Reason | None = None,
    event: EventKind | None,
) -> Job | None:
    """Write a new version of a recurring job and return it; None on a conflict with a change of it or its runs.

    What is planned after `retract_after` is retracted: waiting runs are deleted, and nodes that hold a run which has
    not started get the stop request `stop`. With `rewind` the job goes back to the first retracted slot, instead of
    the next slot of `after`.
    """
    planned = Planned()
    if retract_after is not None:
        found = await _planned(store, clock, before.id, retract_after)
        if found is None:
            return None
        planned = found
    if rewind:
        after = rewound(replace(after, next_fire_at=before.next_fire_at), planned)
    trails = await store.records(ScheduleTrail, owner=before.owner, key=before.id)
    trail = trails[0] if trails else None
    gaps = await _untold_gaps(store, before, after.updated_at)
    change = change_job(before, after, planned, trail=trail, gaps=gaps, stop=stop, event=event)
    [refusal] = await store.apply([change])
    return after if refusal is None else None


async def _untold_gaps(store: Store, job: Job, now: datetime) -> list[Skip]:
    """The slots in clock changes that no firing told since the job was written: it is paused, or was not fired yet."""
    unfired = job.status is JobStatus.PAUSED or job.plan_at == job.updated_at
    gaps = gap_skips(job, job.updated_at, now) if unfired else ()
    if not gaps:
        return []
    ledger = await store.ledger(job.id, start=job.updated_at, end=now, limit=1)
    told = {skip.start for skip in ledger.skips if skip.reason is Reason.DST_GAP}
    return [gap for gap in gaps if gap.start not in told]


async def _planned(store: Store, clock: Clock, job_id: JobId, after: datetime) -> Planned | None:
    """What is due after `after`; None if that was so long ago that some of it may have run."""
    waiting = RunFilter(job_id=job_id, states=WAITING | {State.CLAIMED}, start_at=after)
    runs = await store.list_runs(waiting, cursor=None, limit=4 * MAX_UNSTARTED)
    ledger = await store.ledger(job_id, start=after, end=_FAR, limit=1)
    of_schedule = [run for run in runs.items if run.trigger is Trigger.SCHEDULE]
    now = clock.now()
    if any(after < run.due_at <= now for run in (*of_schedule, *ledger.runs)):
        return None
    return Planned.among(of_schedule, ledger.skips, after=after)
