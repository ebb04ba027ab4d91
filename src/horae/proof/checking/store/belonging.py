"""Checks that runs belong to their jobs, by owner and revision, and that keys are held by the jobs that have them."""

from collections.abc import Iterator

from horae.core.decisions.release import is_key_gate, key_gate
from horae.core.effects import OVER
from horae.core.lifecycle import FINAL
from horae.core.model import Job, JobId, Run, Trigger
from horae.core.records import ScheduleTrail
from horae.core.schedule.trail import trail_of
from horae.proof.checking.findings import Code, Violation, job_name, of_job, of_run

_RECURRING_ONLY = frozenset({Trigger.SCHEDULE, Trigger.BACKFILL})


def judge_has_job(run: Run, job: Job | None) -> Iterator[Violation]:
    """Check that the job of a run exists; recurring jobs are kept for ever, one-shots only as long as their run is."""
    if job is None and not run.one_shot and run.trigger in _RECURRING_ONLY:
        yield of_run(Code.JOB_MISSING, run, f"its job {job_name(run.job_id)} does not exist")


def judge_belonging(run: Run, job: Job | None) -> Iterator[Violation]:
    """Check that a run has the owner of its job, a revision that its job had, and a gate of its owner."""
    if job is not None and run.owner != job.owner:
        detail = f"it belongs to {run.owner!r}, but its job to {job.owner!r}"
        yield of_run(Code.FOREIGN, run, detail)
    elif _is_in_gate_of_another(run):
        yield of_run(Code.FOREIGN, run, f"it belongs to {run.owner!r}, but its gate is {run.gate!r}")
    if job is not None and not 1 <= run.revision <= job.revision:
        detail = f"it has revision {run.revision}, but its job has reached {job.revision} only"
        yield of_run(Code.REVISION_UNKNOWN, run, detail)


def _is_in_gate_of_another(run: Run) -> bool:
    key = run.spec.ordering_key
    if run.gate is None or key is None or not is_key_gate(run.gate):
        return False
    return run.gate not in (key_gate(run.owner, key), f"key:{run.owner}:{key}")  # the second: by an earlier release


def judge_revision(job: Job, stored: ScheduleTrail | None) -> Iterator[Violation]:
    """Check that a job has the revision that its last change gave it."""
    trail = trail_of(job, stored)
    reached = 1 if stored is None and job.updated_at == job.created_at else trail.revision
    if job.revision != reached:
        detail = f"it has revision {job.revision}, but its last change was revision {reached}"
        yield of_job(Code.REVISION_UNKNOWN, job, detail)


def judge_key_of_job(job: Job, holder: JobId | None) -> Iterator[Violation]:
    """Check that a recurring job holds its key until it is over; `holder` is the job that has it in the store."""
    if (detail := _wrong_key(job.id, holder, over=job.status in OVER)) is not None:
        yield of_job(Code.KEY_LOST, job, detail)


def judge_key_of_run(run: Run, holder: JobId | None) -> Iterator[Violation]:
    """Check that a one-shot holds its key until it ends."""
    if (detail := _wrong_key(run.job_id, holder, over=run.state in FINAL)) is not None:
        yield of_run(Code.KEY_LOST, run, detail)


def _wrong_key(job_id: JobId, holder: JobId | None, *, over: bool) -> str | None:
    if over:
        return "it is over, but still holds its key" if holder == job_id else None
    if holder == job_id:
        return None
    return "nobody holds its key" if holder is None else f"its key is held by {job_name(holder)}"
