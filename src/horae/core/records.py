"""Small records that stores keep by key: idempotency receipts, declared schedules, queue settings."""

from datetime import datetime, timedelta

from horae.core.values import Value

RECEIPT_LIFE = timedelta(hours=24)  # how long a repeated request is recognised


class Receipt(Value, frozen=True, kw_only=True):
    """The answer to a request that its sender may repeat; one per owner and key, for RECEIPT_LIFE."""

    owner: str
    key: str
    fingerprint: str  # of the request: another one under the same key is a mistake
    answer: str
    created_at: datetime


class Declaration(Value, frozen=True, kw_only=True):
    """A version of a schedule that some code declared; of several under one key the one seen last holds."""

    app: str
    key: str
    digest: str
    seen_at: datetime


class QueueSettings(Value, frozen=True, kw_only=True):
    """What administrators say about a queue."""

    queue: str
    paused: bool = False  # nothing of it is claimed; what a node already holds goes on
    concurrency: int | None = None


SETTINGS = ("paused", "concurrency")  # what can be said about a queue
