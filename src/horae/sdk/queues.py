"""`Queue(...)`: the settings of a queue, declared in code."""

from collections.abc import Sequence
from dataclasses import dataclass

from horae.core.errors import Invalid
from horae.core.records import QueueSettings
from horae.sdk.options import job_options


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, and how many of its runs may run at a time on all workers together; None: any number."""

    name: str
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if job_options({"queue": self.name}).queue is None:
            raise Invalid("Queue: it needs a name", pointer="/queue")
        limit = self.concurrency
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise Invalid(
                f"Queue {self.name}: concurrency is a number from 1, or None for no limit, not {limit!r}",
                pointer="/concurrency",
            )


def declared_queues(queues: Sequence[Queue]) -> Sequence[QueueSettings]:
    """Return the settings of queues; raises Invalid when a queue is named twice."""
    declared: dict[str, QueueSettings] = {}
    for queue in queues:
        if not isinstance(queue, Queue):
            raise TypeError(f'queues= takes Queue(...), for example Queue("mail", concurrency=5), not {queue!r}')
        if queue.name in declared:
            raise Invalid(f"the queue {queue.name} is declared twice; leave one of them out", pointer="/queues")
        declared[queue.name] = QueueSettings(queue=queue.name, concurrency=queue.concurrency)
    return list(declared.values())
