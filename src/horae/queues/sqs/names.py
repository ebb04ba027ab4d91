"""Names of SQS queues: one for each queue of Horae and class of priority, and one for what was refused.

SQS takes letters, digits, `-` and `_`, 80 in all. Two underscores separate the parts, and no part has two of them, so
two names are never the same by accident or by a tenant's wish.
"""

import re
from enum import IntEnum
from hashlib import sha256

LONGEST_NAME = 80
REFUSED = "refused"
_PLAIN = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_OTHER = re.compile(r"[^A-Za-z0-9-]+")


class PriorityClass(IntEnum):
    """What keeps its order between SQS queues; within one, SQS keeps none."""

    HIGH = 0
    NORMAL = 1
    LOW = 2

    @classmethod
    def of(cls, priority: int) -> "PriorityClass":
        """Return the class of a priority: above, at or below the default.

        Three, because each costs a taker long polls of its own, and what users set is "before" or "after the rest".
        """
        return cls.HIGH if priority > 0 else cls.LOW if priority < 0 else cls.NORMAL


def line_name(prefix: str, queue: str, level: PriorityClass) -> str:
    """Return the SQS queue that holds the tickets of a queue and class."""
    end = f"__{level.name.lower()}"
    room = LONGEST_NAME - len(prefix) - 2 - len(end)
    if _PLAIN.fullmatch(queue) and len(queue) <= room:
        return f"{prefix}__{queue}{end}"
    digest = sha256(queue.encode()).hexdigest()[:16]
    readable = _OTHER.sub("-", queue).strip("-")[: room - len(digest) - 2]
    return f"{prefix}__{readable}__{digest}{end}"


def refused_name(prefix: str) -> str:
    """Return the SQS queue of messages that were set aside."""
    return f"{prefix}__{REFUSED}"


def level_of(name: str) -> PriorityClass | None:
    """Return the class of an SQS queue by its name; None when it holds no tickets."""
    end = name.rpartition("__")[2].upper()
    return PriorityClass[end] if end in PriorityClass.__members__ else None
