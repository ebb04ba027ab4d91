"""The kinds of events in the event feed."""

from horae.core.model import State
from horae.core.values import FastStrEnum


class EventKind(FastStrEnum):
    """The kinds of events; all but the last two are stored, so that a listener can resume after a disconnect.

    A one-shot job has the event `job.created` and those of its run.
    """

    JOB_CREATED = "job.created"
    JOB_UPDATED = "job.updated"
    JOB_PAUSED = "job.paused"
    JOB_RESUMED = "job.resumed"
    JOB_CANCELLED = "job.cancelled"
    JOB_FINISHED = "job.finished"
    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RUN_SKIPPED = "run.skipped"
    RUN_STARTED = "run.started"
    RUN_PROGRESS = "run.progress"


_END_EVENTS = {
    State.SUCCEEDED: EventKind.RUN_SUCCEEDED,
    State.FAILED: EventKind.RUN_FAILED,
    State.CANCELLED: EventKind.RUN_CANCELLED,
    State.SKIPPED: EventKind.RUN_SKIPPED,
}


def end_of_run(state: State) -> EventKind:
    """The kind of event for a run that reached a final state."""
    return _END_EVENTS[state]
