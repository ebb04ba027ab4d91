"""Tickets: what a queue holds of a run that wakes soon. A ticket is a hint, and the store knows whether it is true."""

from datetime import datetime

from horae.core.model import Run, RunId
from horae.core.values import Value


class Ticket(Value, frozen=True, kw_only=True):
    """A run that wakes soon, with what a queue needs to put it in order."""

    run_id: RunId
    task: str
    queue: str
    priority: int
    owner: str
    wake_at: datetime

    @classmethod
    def of(cls, run: Run) -> "Ticket":
        spec = run.spec
        return cls(
            run_id=run.id,
            task=spec.task,
            queue=spec.queue,
            priority=spec.priority,
            owner=run.owner,
            wake_at=run.wake_at,
        )
