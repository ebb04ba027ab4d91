"""The writable fields of a job under their REST names; None is sent as null."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from horae.core.schedule.types import Schedule


class RetryFields(TypedDict, total=False):
    """The delays between attempts."""

    initial_seconds: float
    factor: float
    max_seconds: float
    jitter: bool


class JobFields(TypedDict, total=False):
    """The writable fields of a job except its task."""

    params: Mapping[str, Any] | None
    secrets: Mapping[str, Any] | None
    name: str | None
    key: str | None
    labels: Mapping[str, str] | None
    schedule: "str | datetime | Mapping[str, Any] | Schedule | None"
    queue: str | None
    priority: int | None
    ordering_key: str | None
    on_failure: Literal["continue", "block"] | None
    max_retries: int | None
    retry: RetryFields | None
    timeout_seconds: float | None
    start_within_seconds: float | None
    overlap: Literal["allow", "skip", "buffer_one"] | None
    misfire: Literal["skip", "once", "all"] | None
    catchup_seconds: float | None
    allow_unknown_task: bool | None


class JobChanges(JobFields, total=False):
    """The fields that a merge patch may change."""

    task: str


class NewJob(JobFields, total=False):
    """A job of a batch."""

    task: Required[str]
    idempotency_key: str
