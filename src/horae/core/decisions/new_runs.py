"""Runs outside a recurring schedule: one-shots, manual runs, requeued dead letters."""

from datetime import datetime

from horae.core.decisions.release import gate_of
from horae.core.ids import NewId
from horae.core.model import Job, Run, RunId, Trigger
from horae.core.schedule.timestamps import TICK
from horae.core.schedule.types import At, Schedule
from horae.core.values import replace


def one_shot_due(schedule: Schedule, now: datetime) -> datetime:
    """Return when a one-shot is due: at the time of its schedule, or now."""
    return schedule.time if isinstance(schedule, At) else now


def manual_run(job: Job, *, now: datetime, new_id: NewId) -> Run:
    """Return a run of a job outside its schedule; it waits for its gate but is never skipped."""
    return Run(
        id=RunId(new_id()),
        job_id=job.id,
        owner=job.owner,
        created_by=job.created_by,
        spec=replace(job.spec, key=None),
        trigger=Trigger.MANUAL,
        due_at=now,
        wake_at=now,
        gate=gate_of(job.spec, job.id, job.owner, recurring=job.recurring),
        revision=job.revision,
        created_at=now,
    )


def requeued(run: Run, *, now: datetime, new_id: NewId) -> Run:
    """Return the run that replaces a dead letter, at the same place in the order of its key."""
    return Run(
        id=RunId(new_id()),
        job_id=run.job_id,
        owner=run.owner,
        created_by=run.created_by,
        spec=replace(run.spec, key=None),
        trigger=Trigger.REQUEUE,
        # Its id is newer than those of runs due at the same time (a batch); one microsecond earlier it keeps its place.
        due_at=run.due_at - TICK if run.spec.ordering_key else now,
        wake_at=now,
        gate=run.gate,
        revision=run.revision,
        created_at=now,
        requeue_of=run.id,
    )
