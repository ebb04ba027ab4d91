"""The values that the client returns and the fields that it sends, under their REST names.

Fields of a response that this version does not know are ignored; None in a request is sent as null.
"""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, TypedDict, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from horae.core.schedule.types import Schedule

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})  # the final statuses of a run


class Page(Struct, Generic[T], frozen=True):
    """One page of a list; `next_cursor` is None on the last page.

    A page that ended early, because it had looked at as many rows as it may, has fewer items than asked for, or none,
    and `searched_to`: the time down to which it has searched.
    """

    items: list[T]
    next_cursor: str | None = None
    searched_to: datetime | None = None


class RunError(Struct, frozen=True):
    """Why an attempt failed: `timeout`, `crash`, or the exception's name."""

    type: str
    message: str


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt of a run."""

    number: int
    outcome: str  # running, succeeded, failed, timeout, lost, released or cancelled
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_id: str | None = None
    fence: int = 0
    error: RunError | None = None


class Run(Struct, frozen=True, kw_only=True):
    """One occurrence of a job; lists leave out its attempts, and what `omitted` names."""

    id: str
    job_id: str
    status: str  # scheduled, queued, running, retrying, cancelling, or one of ENDED
    trigger: str  # schedule, manual, backfill or requeue
    due_at: datetime
    owner: str = ""
    created_by: str = ""
    task: str = ""
    params: dict[str, Any] | None = None  # without secrets; None if they were omitted
    name: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}
    queue: str = "default"
    priority: int = 0
    slot: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    lateness_ms: float | None = None
    attempt: int = 0
    attempts: list[Attempt] = []
    crashes: int = 0
    worker_id: str | None = None
    progress: float | None = None
    result: Any = None
    error: RunError | None = None
    reason: str | None = None
    created_at: datetime | None = None
    requeue_of: str | None = None
    resolution: str | None = None
    omitted: list[str] = []  # values that are too large for a list; `client.runs.get` returns them
    archived: bool = False  # it is in the archive, and no longer in the store

    @property
    def ended(self) -> bool:
        """Whether the run has a final status."""
        return self.status in ENDED


class Status(Struct, frozen=True, kw_only=True):
    """The status of a job's latest due run; before any is due, `scheduled` without a run."""

    job_id: str
    run_id: str | None
    status: str
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    progress: float | None = None
    worker_id: str | None = None
    lateness_ms: float | None = None
    next_run_at: datetime | None = None


class Retry(Struct, frozen=True):
    """The delays between attempts."""

    initial_seconds: float = 5
    factor: float = 2
    max_seconds: float = 600
    jitter: bool = True


class Job(Struct, frozen=True, kw_only=True):
    """A job: which task to run, when, and how."""

    id: str
    owner: str
    status: str  # scheduled, paused, finished or cancelled
    task: str
    schedule: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    revision: int  # for `if_match`
    params: dict[str, Any] | None = None  # None if they were omitted
    created_by: str = ""
    name: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}
    description: str = ""  # the schedule in words
    queue: str = "default"
    priority: int = 0
    ordering_key: str | None = None
    on_failure: str = "continue"
    max_retries: int = 3
    retry: Retry = Retry()
    timeout_seconds: float | None = None
    start_within_seconds: float | None = None
    overlap: str = "skip"
    misfire: str = "once"
    catchup_seconds: float = 3600
    next_run_at: datetime | None = None
    last_run: Status | None = None
    omitted: list[str] = []  # values that are too large for a list; `client.jobs.get` returns them


class Resource(Struct, frozen=True):
    """How much of something an owner keeps, and how much it may; None means any amount."""

    used: int
    limit: int | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """What an owner keeps: counted a short while ago (`counted_at`), plus what the server accepted since."""

    owner: str
    waiting: Resource
    recurring: Resource
    queues: Resource
    stored_bytes: Resource
    counted_at: datetime | None = None


class ArchivedDay(Struct, frozen=True, kw_only=True):
    """A day of ended runs in the archive."""

    day: date
    runs: int
    bytes: int  # compressed
    parts: int


class Restored(Struct, frozen=True, kw_only=True):
    """What a request has restored from the archive; what was in the store already counts."""

    restored: int
    missing: list[str] = []  # ids that the archive does not have
    cursor: str | None = None  # continues behind what was looked at; None at the end


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


class Place(Struct, frozen=True):
    """One error in a request, and a JSON pointer to the field."""

    pointer: str
    detail: str


class Problem(Struct, frozen=True, kw_only=True):
    """A problem document (RFC 9457): why the server refused a request."""

    status: int = 0
    detail: str = ""
    title: str = ""
    code: str = "refused"
    type: str = "about:blank"
    errors: list[Place] = []


class BatchItem(Struct, frozen=True, kw_only=True):
    """The outcome of one job of a batch: its id, or the problem with it."""

    id: str | None = None
    error: Problem | None = None


class BatchResult(Struct, frozen=True, kw_only=True):
    """The outcome of a batch; `items` are in the order of the jobs."""

    items: list[BatchItem]
    accepted: int
    rejected: int


class Backfill(Struct, frozen=True, kw_only=True):
    """Past slots that are being turned into runs."""

    id: str
    job_id: str
    start: datetime
    end: datetime
    runs: int  # still to be created


class Upcoming(Struct, frozen=True, kw_only=True):
    """A time at which a job will run; later than its slot where the schedule has jitter."""

    at: datetime
    slot: datetime | None = None
    note: str | None = None


class Slot(Struct, frozen=True, kw_only=True):
    """An entry of the ledger: a slot, or a range of consecutive slots with the same outcome."""

    start: datetime = msgspec.field(name="from")
    end: datetime = msgspec.field(name="to")
    count: int
    outcome: str  # ran, skipped or pending
    reason: str | None = None
    run_id: str | None = None


class Why(Struct, frozen=True, kw_only=True):
    """Why a run has not started."""

    reason: str
    detail: str
    expected_at: datetime | None = None


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters with the same task and error."""

    error: RunError
    task: str
    count: int
    oldest_at: datetime
    newest_at: datetime
    example_run_id: str


class Resolved(Struct, frozen=True, kw_only=True):
    """How many dead letters matched, were resolved, and still match."""

    matched: int
    done: int
    remaining: int


class BulkResult(Struct, frozen=True, kw_only=True):
    """How many jobs or runs were selected, for how many the act succeeded, and how many are left."""

    matched: int
    done: int
    remaining: int
    cursor: str | None = None  # where to go on; None: everything was looked at


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue with its settings and figures."""

    name: str
    depth: int
    running: int
    oldest_age_seconds: float | None = None
    lateness_p99_ms: float | None = None
    paused: bool = False
    concurrency: int | None = None


class Worker(Struct, frozen=True, kw_only=True):
    """A node, by default one that runs tasks."""

    id: str
    name: str
    version: str = ""
    roles: list[str] = []
    queues: list[str] = []  # empty: every queue
    concurrency: int = 0
    running: int = 0
    started_at: datetime | None = None
    last_seen_at: datetime | None = None
    alive: bool = True  # whether its heartbeats arrive


class Task(Struct, frozen=True, kw_only=True):
    """A task that some worker knows, with the JSON schema of its parameters."""

    name: str
    schema: dict[str, Any]


class Fire(Struct, frozen=True, kw_only=True):
    """A time at which a schedule fires."""

    at: datetime
    note: str | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """A schedule in words, and the times at which it fires."""

    description: str
    fires: list[Fire]
    warnings: list[str] = []


class Event(Struct, frozen=True, kw_only=True):
    """An event of a job or run, with the job or run itself."""

    type: str
    at: datetime
    job_id: str | None = None  # None if its run has been deleted
    run_id: str | None = None
    job: Job | None = None
    run: Run | None = None
    id: str | None = None  # for `last_event_id`
