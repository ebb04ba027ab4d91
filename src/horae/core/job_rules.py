"""What becomes of a job when somebody acts on it: how it stands, and how slots of a pause are accounted for."""

from datetime import datetime, timedelta

from horae.core.events import EventKind
from horae.core.firing import Firing, Page, catch_up
from horae.core.ids import NewId
from horae.core.lifecycle import FINAL
from horae.core.model import Backfill, Job, JobStatus, Misfire, Reason, Run, Skip, State, Trigger
from horae.core.schedule.evaluate import count_between, jittered, next_after, skipped_in_gaps
from horae.core.values import replace

_TICK = timedelta(microseconds=1)


def job_of(run: Run) -> Job:
    """The one-shot job that is stored as this run."""
    assert run.schedule is not None
    return Job(
        id=run.job_id,
        owner=run.owner,
        created_by=run.created_by,
        spec=run.spec,
        schedule=run.schedule,
        status=one_shot_status(run),
        next_fire_at=None,
        plan_at=None,
        run=run,
        revision=run.revision,
        created_at=run.created_at,
        updated_at=max(run.created_at, run.started_at or run.created_at, run.finished_at or run.created_at),
    )


def one_shot_status(run: Run) -> JobStatus:
    """The status of the one-shot job that is stored as this run."""
    if run.state is State.CANCELLED or (run.stop is Reason.CANCELLED and run.state not in FINAL):
        return JobStatus.CANCELLED
    if run.state in FINAL:
        return JobStatus.FINISHED
    return JobStatus.PAUSED if run.paused else JobStatus.SCHEDULED


def fired(firing: Firing) -> Job:
    """The job as a firing leaves it."""
    return replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)


def minds_cancel(item: Run | Firing) -> bool:
    """Whether what is written here must not come after the cancel of its job: a user asks for it, maybe beside that."""
    return not isinstance(item, Firing) and item.trigger is Trigger.MANUAL and not item.one_shot


def run_status(run: Run, now: datetime) -> str:
    """The status of a run that users see: claims are the engine's own affair."""
    if run.stop is Reason.CANCELLED and run.state not in FINAL:  # also where an attempt ended before it was asked
        return "cancelling"
    if run.state is State.CLAIMED and run.attempt > 0:
        return State.RETRYING
    if run.state in (State.SCHEDULED, State.CLAIMED):
        return "queued" if run.due_at <= now and not run.paused else State.SCHEDULED
    return run.state


def next_run_at(job: Job, now: datetime) -> datetime | None:
    """When the job runs next by its schedule; None while it is paused or has no further slot."""
    if job.status is not JobStatus.SCHEDULED:
        return None
    if job.run is not None:
        return job.run.due_at if job.run.state in (State.SCHEDULED, State.CLAIMED) else None
    slot = next_after(job.schedule, now)
    return None if slot is None else jittered(job.schedule, job.id, slot)


def resume(job: Job, missed: Misfire, *, now: datetime, new_id: NewId) -> Firing:
    """End a pause: the slots that came due in it are treated by `missed`, the others follow their schedule.

    It is one firing of the paused job, so that they are accounted for in the same compare-and-set that resumes it.
    """
    if job.next_fire_at is None:
        return Firing(job=job, next_fire_at=None, plan_at=now, event=EventKind.JOB_RESUMED)
    # A slot right ahead may be accounted for already: by a run that its worker held, and gave up for the pause.
    following = job.next_fire_at if job.next_fire_at > now else next_after(job.schedule, now)
    caught_up = catch_up(job, job.next_fire_at, now + _TICK, missed, Reason.PAUSED, now, new_id)
    return Firing(
        job=job,
        runs=caught_up.runs,
        skips=caught_up.skips + _gap_skips(job, following or now),
        backfill=caught_up.backfill,
        next_fire_at=following,
        plan_at=now + _TICK,  # at once, and yet not the plan of a job that was just written (see `plan._gap_skips`)
        event=EventKind.JOB_RESUMED,
    )


def close_pause(job: Job, *, now: datetime, new_id: NewId) -> Firing:
    """Account for the slots that came due in a pause that goes on; before a change of schedule, or a cancel."""
    ended = resume(job, Misfire.SKIP, now=now, new_id=new_id)
    return Firing(job=job, skips=ended.skips, next_fire_at=ended.next_fire_at, plan_at=None, status=JobStatus.PAUSED)


def give_up(job: Job, backfill: Backfill) -> Page:
    """End a backfill whose schedule is about to go: no further run of it, and its slots as skipped.

    What users fill was accounted for before, and is so still.
    """
    skipped = Skip(
        job_id=job.id,
        revision=job.revision,
        start=backfill.start,
        end=backfill.end,
        count=count_between(job.schedule, backfill.start, backfill.end + _TICK),
        reason=Reason.CANCELLED,
    )
    skips = (skipped,) if backfill.trigger is Trigger.SCHEDULE else ()
    return Page(backfill=backfill, runs=(), start=None, plan_at=backfill.plan_at, skips=skips)


def _gap_skips(job: Job, until: datetime) -> tuple[Skip, ...]:
    """The slots that a clock change swallows after the last change of a paused job, which took back all to come."""
    return tuple(
        Skip(job_id=job.id, revision=job.revision, start=slot, end=slot, count=1, reason=Reason.DST_GAP)
        for slot in skipped_in_gaps(job.schedule, job.updated_at, until)
    )
