"""New runs outside a schedule: one-shots, manual runs, requeued dead letters."""

from datetime import datetime, timedelta

from horae.core.ids import NewId
from horae.core.model import Job, Run, RunId, Trigger
from horae.core.release import gate_of
from horae.core.schedule.types import At, Schedule
from horae.core.values import replace

_TICK = timedelta(microseconds=1)


def one_shot_due(schedule: Schedule, now: datetime) -> datetime:
    """When the single run of a one-shot schedule is due: its instant, or now."""
    return schedule.time if isinstance(schedule, At) else now


def manual_run(job: Job, params: str | None, *, now: datetime, new_id: NewId) -> Run:
    """A run outside the schedule; it waits for its gate but is never skipped."""
    spec = job.spec if params is None else replace(job.spec, params=params, params_blob=None)
    return Run(
        id=RunId(new_id()),
        job_id=job.id,
        owner=job.owner,
        created_by=job.created_by,
        spec=replace(spec, key=None),
        trigger=Trigger.MANUAL,
        due_at=now,
        wake_at=now,
        gate=gate_of(spec, job.id, job.owner, recurring=job.recurring),
        revision=job.revision,
        created_at=now,
    )


def requeued(run: Run, *, now: datetime, new_id: NewId) -> Run:
    """A dead letter once more, as a new run in the same place of its order."""
    return Run(
        id=RunId(new_id()),
        job_id=run.job_id,
        owner=run.owner,
        created_by=run.created_by,
        spec=replace(run.spec, key=None),
        trigger=Trigger.REQUEUE,
        # Its id is younger than those of runs that were due at the same time, as a batch is: a tick keeps its place.
        due_at=run.due_at - _TICK if run.spec.ordering_key else now,
        wake_at=now,
        gate=run.gate,
        revision=run.revision,
        created_at=now,
        requeue_of=run.id,
    )
