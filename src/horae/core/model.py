"""The domain as frozen values: job, run, attempt, skip, backfill, node."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NewType

from horae.core.decisions.retry import RetryPolicy
from horae.core.schedule.types import Schedule
from horae.core.values import FastStrEnum, Value

JobId = NewType("JobId", str)  # the 32 hexadecimal digits of a UUIDv7; a one-shot job and its run share them
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)

SHARDS = 64
DISCARDED = "discarded"  # the resolution of a dead letter that was given up
LOCAL = "local"  # the default owner


class State(FastStrEnum):
    """The state of a run; `lifecycle` has the transitions."""

    SCHEDULED = "scheduled"
    CLAIMED = "claimed"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Trigger(FastStrEnum):
    """Why a run exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    REQUEUE = "requeue"


class Overlap(FastStrEnum):
    """What to do with a slot while the previous run is still active."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"


class Misfire(FastStrEnum):
    """What to do with slots that were not fired in time."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class OnFailure(FastStrEnum):
    """What a run that failed for good does to later runs with its ordering key."""

    CONTINUE = "continue"
    BLOCK = "block"  # they wait until it is requeued or discarded


class Reason(FastStrEnum):
    """Why a slot has no run, or a run that never started."""

    OVERLAP = "overlap"
    PAUSED = "paused"
    MISFIRE = "misfire"
    TOO_LATE = "too_late"
    DST_GAP = "dst_gap"
    CANCELLED = "cancelled"


class JobStatus(FastStrEnum):
    """The status of a job."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Outcome(FastStrEnum):
    """How an attempt that did not succeed ended; only `failed` and `timeout` count against the retries."""

    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"  # its node died
    RELEASED = "released"  # given back by a node that drains or has no capacity
    CANCELLED = "cancelled"


class Policy(Value, frozen=True, kw_only=True):
    """How a run is retried, timed and skipped; most runs share a few policies, so stores cache decoded ones."""

    retry: RetryPolicy = RetryPolicy()
    timeout: timedelta | None = None
    start_within: timedelta | None = None  # a first start later than this is skipped as too late
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.ONCE
    catchup: timedelta = timedelta(hours=1)
    on_failure: OnFailure = OnFailure.CONTINUE


NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Spec(Value, frozen=True):
    """What to run and how: the part of a job that is copied to each of its runs."""

    task: str
    params: str = "{}"  # JSON text, never decoded on its way
    params_blob: str | None = None  # the blob that holds large parameters; `params` is then "{}"
    name: str | None = None
    key: str | None = None
    labels: Mapping[str, str] = NO_LABELS
    queue: str = "default"
    priority: int = 0
    ordering_key: str | None = None
    policy: Policy = Policy()
    secrets: str | None = None  # sealed; merged into the parameters at the start, and never returned


class JobError(Value, frozen=True, kw_only=True):
    """Why an attempt failed, as users see it."""

    type: str  # `timeout`, `crash`, or the exception's name
    message: str


class Run(Value, frozen=True):
    """One occurrence of a job, with one or more attempts."""

    id: RunId
    job_id: JobId
    owner: str
    created_by: str
    spec: Spec
    due_at: datetime  # in UTC; changes only when a one-shot is updated
    wake_at: datetime  # when it may next be claimed
    created_at: datetime
    schedule: Schedule | None = None  # set only on the run that a one-shot is stored as; use that of the job
    trigger: Trigger = Trigger.SCHEDULE
    slot: datetime | None = None
    gate: str | None = None  # runs with the same gate are executed one after another
    state: State = State.SCHEDULED
    paused: bool = False  # only of a one-shot that was paused before it was due
    stop: Reason | None = None  # a request to its node: `cancelled`, or `paused` if it has not started
    node: NodeId | None = None
    fence: int = 0  # grows with every claim, never reused
    attempt: int = 0  # counted attempts; the first is 1
    crashes: int = 0
    revision: int = 1
    progress: float | None = None
    error: JobError | None = None  # of the last failed attempt
    result: str | None = None  # JSON text
    reason: Reason | None = None  # why it was skipped
    first_started_at: datetime | None = None  # of attempt 1; lateness is measured by it
    started_at: datetime | None = None  # of the current or last attempt
    finished_at: datetime | None = None
    resolution: str | None = None  # of a dead letter: `discarded`, or the id of the run that replaced it
    requeue_of: RunId | None = None  # the dead letter that this run replaces

    @property
    def one_shot(self) -> bool:
        """Whether a one-shot job is stored as this run; False for its later manual runs."""
        return self.schedule is not None


class Job(Value, frozen=True, kw_only=True):
    """What to run and when: once, or by a recurring schedule."""

    id: JobId
    owner: str
    created_by: str
    spec: Spec
    schedule: Schedule
    status: JobStatus = JobStatus.SCHEDULED
    next_fire_at: datetime | None  # the first slot that is not yet accounted for; None when there is none
    plan_at: datetime | None  # when a planner should read it; None while there is nothing to plan
    run: Run | None = None  # of a one-shot, read and written with it; None for a recurring job
    revision: int = 1
    created_at: datetime
    updated_at: datetime

    @property
    def recurring(self) -> bool:
        """Whether it has a recurring schedule; a one-shot has not."""
        return self.run is None

    @property
    def shard(self) -> int:
        return shard_of(self.id)


class Attempt(Value, frozen=True, kw_only=True):
    """An attempt that did not succeed; the successful one is part of its run."""

    run_id: RunId
    number: int
    fence: int
    node: NodeId | None
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    error: JobError | None = None


class Skip(Value, frozen=True, kw_only=True):
    """A range of slots without runs, both ends included."""

    job_id: JobId
    revision: int
    start: datetime
    end: datetime
    count: int
    reason: Reason


class Backfill(Value, frozen=True, kw_only=True):
    """A range of slots that planners turn into runs, page by page, oldest first."""

    id: str
    job_id: JobId
    trigger: Trigger  # `backfill` when a user requested it, `schedule` when `misfire: all` did
    start: datetime  # the next slot to turn into a run
    end: datetime  # the last slot, included
    plan_at: datetime
    created_at: datetime


class Node(Value, frozen=True, kw_only=True):
    """A process with one or more roles; it gets a new id each time it starts."""

    id: NodeId
    name: str  # host and process, to be read by people
    roles: tuple[str, ...]
    version: str
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    started_at: datetime
    beat_at: datetime
    running: int = 0
    tasks: Mapping[str, str] = NO_LABELS  # name → JSON schema of its parameters
    wall_ahead: timedelta = timedelta()  # of the machine's own clock, which is only reported


def shard_of(job_id: JobId) -> int:
    """Return the planner shard of a job; the low bits of a UUIDv7 are random, so shards are even."""
    return int(job_id[-2:], 16) % SHARDS
