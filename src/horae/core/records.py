"""Small records that stores keep by key: idempotency receipts, keys of jobs, declared schedules, queue settings."""

from datetime import datetime, timedelta

from horae.core.model import JobId
from horae.core.values import Value

RECEIPT_LIFE = timedelta(hours=24)  # how long a repeated request is recognised


class Receipt(Value, frozen=True, kw_only=True):
    """The answer to a request that its sender may repeat; one per owner and key, for RECEIPT_LIFE."""

    owner: str
    key: str
    fingerprint: str  # of the request: another one under the same key is a mistake
    answer: str
    created_at: datetime

    @property
    def place(self) -> tuple[str, str]:
        return self.owner, self.key


class KeyHolder(Value, frozen=True, kw_only=True):
    """The unfinished job that has a key, of which an owner has each at most once."""

    owner: str
    key: str
    job_id: JobId

    @property
    def place(self) -> tuple[str, str]:
        return self.owner, self.key


class Declaration(Value, frozen=True, kw_only=True):
    """A version of a schedule that some code declared; of several under one key the one seen last holds."""

    owner: str
    app: str
    key: str
    digest: str
    seen_at: datetime


class QueueSettings(Value, frozen=True, kw_only=True):
    """What administrators set for a queue."""

    queue: str
    paused: bool = False  # nothing of it is claimed; what a node already holds goes on
    concurrency: int | None = None


class TaskSchema(Value, frozen=True, kw_only=True):
    """A task that some node registered, with the JSON schema of its parameters."""

    name: str
    schema: str


SETTINGS = ("paused", "concurrency")  # what can be said about a queue
