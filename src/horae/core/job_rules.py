"""Rules of jobs: status and next run, the slots of a pause, and backfills that end early."""

from datetime import datetime

from horae.core.decisions.firing import Firing, Page, catch_up, gap_skips, skip_of
from horae.core.events import EventKind
from horae.core.ids import NewId
from horae.core.lifecycle import FINAL
from horae.core.model import Backfill, Job, JobStatus, Misfire, Reason, Run, State, Trigger
from horae.core.schedule.evaluate import SlotRange, count_between, jittered, next_after
from horae.core.schedule.timestamps import TICK


def job_of(run: Run) -> Job:
    """Return the one-shot job that is stored as this run."""
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
    """Return the status of the one-shot job that is stored as this run."""
    if run.state is State.CANCELLED or (run.stop is Reason.CANCELLED and run.state not in FINAL):
        return JobStatus.CANCELLED
    if run.state in FINAL:
        return JobStatus.FINISHED
    return JobStatus.PAUSED if run.paused else JobStatus.SCHEDULED


def run_status(run: Run, now: datetime) -> str:
    """Return the status of a run as users see it, which does not show claims."""
    if run.stop is Reason.CANCELLED and run.state not in FINAL:  # also after its attempt ended
        return "cancelling"
    if run.state is State.CLAIMED and run.attempt > 0:
        return State.RETRYING
    if run.state in (State.SCHEDULED, State.CLAIMED):
        return "queued" if run.due_at <= now and not run.paused else State.SCHEDULED
    return run.state


def next_run_at(job: Job, now: datetime) -> datetime | None:
    """Return when the job runs next by its schedule; None while it is paused or has no further slot."""
    if job.status is not JobStatus.SCHEDULED:
        return None
    if job.run is not None:
        return job.run.due_at if job.run.state in (State.SCHEDULED, State.CLAIMED) else None
    slot = next_after(job.schedule, now)
    return None if slot is None else jittered(job.schedule, job.id, slot)


def resume(job: Job, missed: Misfire, *, now: datetime, new_id: NewId) -> Firing:
    """End a pause: slots that came due in it are handled as `missed` says, later ones follow the schedule.

    This is one firing of the paused job, so that the same compare-and-set accounts for them and resumes the job.
    """
    if job.next_fire_at is None:
        return Firing(job=job, next_fire_at=None, plan_at=now, event=EventKind.JOB_RESUMED)
    # The next slot may be accounted for already, by a run that its worker held and gave up for the pause.
    following = job.next_fire_at if job.next_fire_at > now else next_after(job.schedule, now)
    caught_up = catch_up(job, job.next_fire_at, now + TICK, missed, Reason.PAUSED, now, new_id)
    return Firing(
        job=job,
        runs=caught_up.runs,
        # The last update of the paused job retracted all later skips.
        skips=caught_up.skips + gap_skips(job, job.updated_at, following or now),
        backfill=caught_up.backfill,
        next_fire_at=following,
        plan_at=now + TICK,  # at once, and yet not the time of a job that was just written (see `firing._gap_skips`)
        event=EventKind.JOB_RESUMED,
    )


def close_pause(job: Job, *, now: datetime, new_id: NewId) -> Firing:
    """Account for the slots that came due in a pause that continues, before an update of the schedule or a cancel."""
    ended = resume(job, Misfire.SKIP, now=now, new_id=new_id)
    return Firing(job=job, skips=ended.skips, next_fire_at=ended.next_fire_at, plan_at=None, status=JobStatus.PAUSED)


def cancel_backfill(job: Job, backfill: Backfill) -> Page:
    """End a backfill early: it creates no more runs, and its remaining slots count as skipped.

    Slots of a backfill by a user were accounted for before, so they need no skips.
    """
    count = count_between(job.schedule, backfill.start, backfill.end + TICK)
    skipped = skip_of(job, SlotRange(backfill.start, backfill.end, count), Reason.CANCELLED)
    skips = (skipped,) if backfill.trigger is Trigger.SCHEDULE else ()
    return Page(backfill=backfill, runs=(), start=None, plan_at=backfill.plan_at, skips=skips)
