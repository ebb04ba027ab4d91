"""The event log port: batches of events in the order of their commits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.events import EventKind
from horae.core.values import Value

EVENT_LIFE = timedelta(hours=24)  # how long a listener can come back for what it missed


class EventBatch(Value, frozen=True, kw_only=True):
    """Events of one kind and owner that were committed together."""

    position: str  # of this batch in the order of all: numbers with dots between, which have that order
    kind: EventKind
    owner: str
    at: datetime
    subjects: Sequence[str]  # ids of jobs (`job.*`) or runs (`run.*`)


class EventLog(Protocol):
    """Reads events; they are written with the changes that they report."""

    async def read(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        """Return the batches after a position, in an order that never changes; None starts with the oldest.

        A batch is returned only when none can be committed before it any more. `owner` None means any owner.
        """

    async def last(self, *, before: datetime | None = None) -> str:
        """Return a position after which `read` returns everything that is committed from now on.

        With `before` it is an earlier one: after it comes everything that was committed at that time or later.
        """
