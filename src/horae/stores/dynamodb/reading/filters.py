"""Which rows a list is asked for: filters over decoded rows, for DynamoDB finds rows by one index and no more."""

from horae.core.lifecycle import FINAL
from horae.core.model import Job, Reason, Run, Spec, State
from horae.ports.reader import JobFilter, RunFilter
from horae.stores.common.listing import due_range


def is_letter(run: Run) -> bool:
    """Whether a run is a dead letter: it failed, and nobody has resolved it."""
    return run.state is State.FAILED and run.resolution is None


def run_fits(which: RunFilter, run: Run) -> bool:
    """Whether a run passes a filter."""
    start, end = due_range(which)
    return (
        start <= run.due_at < end
        and which.owner in (None, run.owner)
        and which.job_id in (None, run.job_id)
        and (which.states is None or run.state in which.states)
        and (which.stopping is None or is_stopping(run) is which.stopping)
        and which.task in (None, run.spec.task)
        and which.queue in (None, run.spec.queue)
        and (not which.dead_letters or is_letter(run))
        and (which.error_type is None or (run.error is not None and run.error.type == which.error_type))
        and which.trigger in (None, run.trigger)
        and which.node in (None, run.node)
        and _late_enough(which, run)
        and _labelled(which.label, run.spec)
        and _named(which.text, run.spec)
    )


def is_stopping(run: Run) -> bool:
    """Whether a cancel is being confirmed."""
    return run.stop is Reason.CANCELLED and run.state not in FINAL


def job_fits(which: JobFilter, job: Job) -> bool:
    """Whether a job passes a filter, but for the state of the last run of a recurring job, which is read apart."""
    return (
        which.owner in (None, job.owner)
        and which.status in (None, job.status)
        and which.task in (None, job.spec.task)
        and which.name in (None, job.spec.name)
        and which.key in (None, job.spec.key)
        and which.queue in (None, job.spec.queue)
        and _labelled(which.label, job.spec)
        and _named(which.text, job.spec)
        and (job.run is None or last_run_fits(which, job.run))
    )


def last_run_fits(which: JobFilter, run: Run | None) -> bool:
    """Whether the last run of a job is in one of the states that are asked for, if any are."""
    if which.last_run_states is None:
        return True
    return run is not None and run.state in which.last_run_states and (which.now is None or run.due_at <= which.now)


def _late_enough(which: RunFilter, run: Run) -> bool:
    if which.min_lateness is None:
        return True
    return run.first_started_at is not None and run.first_started_at - run.due_at >= which.min_lateness


def _labelled(label: tuple[str, str | None] | None, spec: Spec) -> bool:
    if label is None:
        return True
    name, value = label
    return name in spec.labels and value in (None, spec.labels[name])


def _named(text: str | None, spec: Spec) -> bool:
    if text is None:
        return True
    wanted = text.casefold()
    return any(wanted in part.casefold() for part in (spec.task, spec.name, spec.key) if part is not None)
