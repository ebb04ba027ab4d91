"""Small records that stores keep by key: idempotency records, keys and past schedules of jobs, settings of queues."""

from datetime import datetime, timedelta

from horae.core.model import JobId
from horae.core.schedule.types import Schedule
from horae.core.values import Value

IDEMPOTENCY_LIFE = timedelta(hours=24)  # how long a repeated request is recognised

Place = tuple[type, str, str]  # of a record that only one may write: its kind, owner and key


class IdempotencyRecord(Value, frozen=True, kw_only=True):
    """The answer to a request that its sender may repeat; one per owner and key, for IDEMPOTENCY_LIFE."""

    owner: str
    key: str
    fingerprint: str  # of the request: another one under the same key is a mistake
    answer: str
    created_at: datetime

    @property
    def place(self) -> Place:
        return IdempotencyRecord, self.owner, self.key

    def is_valid(self, now: datetime) -> bool:
        """Whether the request is still remembered."""
        return self.created_at >= now - IDEMPOTENCY_LIFE


class KeyHolder(Value, frozen=True, kw_only=True):
    """The unfinished job that holds a key; a key is unique for its owner."""

    owner: str
    key: str
    job_id: JobId

    @property
    def place(self) -> Place:
        return KeyHolder, self.owner, self.key


class Declaration(Value, frozen=True, kw_only=True):
    """A version of a schedule that an application declared; of one key, the version seen last is current."""

    owner: str
    app: str
    key: str
    digest: str
    seen_at: datetime


class PastSchedule(Value, frozen=True, kw_only=True):
    """A schedule that a job once had, with its first revision; its slots are those after `since` up to `until`."""

    schedule: Schedule
    revision: int
    since: datetime
    until: datetime


class ScheduleTrail(Value, frozen=True, kw_only=True):
    """What was changed about the schedule of a recurring job; one per job that was changed, see `schedule.trail`."""

    owner: str
    job_id: JobId
    revision: int  # of the job, as it was last changed
    changed_at: datetime
    since: datetime  # after which the slots are those of the current schedule
    since_revision: int  # the first with the current schedule
    past: tuple[PastSchedule, ...] = ()  # oldest first


class QueueSettings(Value, frozen=True, kw_only=True):
    """What administrators set for a queue."""

    queue: str
    paused: bool = False  # no run of it is claimed; runs that a node already holds continue
    concurrency: int | None = None


class TaskSchema(Value, frozen=True, kw_only=True):
    """A task that some node registered, with the JSON schema of its parameters."""

    name: str
    schema: str


Record = IdempotencyRecord | KeyHolder | Declaration | ScheduleTrail | QueueSettings | TaskSchema

SETTINGS = ("paused", "concurrency")  # the fields that administrators set
