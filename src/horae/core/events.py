"""What happens to jobs and runs, under the names that listeners know."""

from horae.core.model import State
from horae.core.values import Word


class EventKind(Word):
    """Kinds of events; all but the last two are kept, so that a listener can come back for what it missed.

    A job that runs once is told of by `job.created` and by the events of its run.
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


_ENDS = {
    State.SUCCEEDED: EventKind.RUN_SUCCEEDED,
    State.FAILED: EventKind.RUN_FAILED,
    State.CANCELLED: EventKind.RUN_CANCELLED,
    State.SKIPPED: EventKind.RUN_SKIPPED,
}


def end_of_run(state: State) -> EventKind:
    """The event of a run that reached a final state."""
    return _ENDS[state]
