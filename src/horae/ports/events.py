"""The event log: batches of events in the order of their commits."""

from collections.abc import Sequence
from datetime import datetime, timedelta

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
