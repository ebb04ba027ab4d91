"""A change of the store as a value: guards that must hold, and rows that are then written atomically.

The core computes changes (`effects`), stores apply them: they lock the rows that the guards name, ask `admit` for each
change, and write what was admitted. No change names more than 100 rows, which is what DynamoDB allows in a transaction.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from horae.core.events import EventKind
from horae.core.model import Attempt, Backfill, Job, JobId, JobStatus, Node, NodeId, Reason, Run, RunId, Skip, State
from horae.core.records import (
    Declaration,
    IdempotencyRecord,
    KeyHolder,
    Place,
    QueueSettings,
    ScheduleTrail,
    TaskSchema,
)
from horae.core.signals import Signal
from horae.core.values import Value, replace

# --- guards -----------------------------------------------------------------------------------------------------------


class JobUnchanged(Value, frozen=True):
    """The recurring job is still as it was read."""

    id: JobId
    revision: int
    next_fire_at: datetime | None
    status: JobStatus

    @classmethod
    def of(cls, job: Job) -> "JobUnchanged":
        return cls(job.id, job.revision, job.next_fire_at, job.status)


class JobNotCancelled(Value, frozen=True):
    """The job is not cancelled, whether it is recurring or a one-shot."""

    id: JobId


class RunUnchanged(Value, frozen=True):
    """The live run is still as it was read."""

    id: RunId
    state: State
    fence: int
    revision: int
    stop: Reason | None

    @classmethod
    def of(cls, run: Run) -> "RunUnchanged":
        return cls(run.id, run.state, run.fence, run.revision, run.stop)


class RunLive(Value, frozen=True):
    """The run has not ended."""

    id: RunId


class Absent(Value, frozen=True):
    """No recurring job and no live run has this id, so this is not a retry of a change that was written."""

    id: JobId | RunId


class LetterOpen(Value, frozen=True):
    """The run is a dead letter that is not resolved."""

    id: RunId


class BackfillUnchanged(Value, frozen=True):
    """The next slot of the backfill is still the same."""

    id: str
    start: datetime


class KeyFree(Value, frozen=True):
    """No other unfinished job of the owner holds the key."""

    holder: KeyHolder


class RequestNew(Value, frozen=True):
    """There is no valid record under this idempotency key of the owner."""

    record: IdempotencyRecord


class QueueUnchanged(Value, frozen=True):
    """The settings of the queue are still as they were read."""

    settings: QueueSettings


class NodeUnchanged(Value, frozen=True):
    """The node has sent no heartbeat since."""

    id: NodeId
    beat_at: datetime


Guard = (
    JobUnchanged
    | JobNotCancelled
    | RunUnchanged
    | RunLive
    | Absent
    | LetterOpen
    | BackfillUnchanged
    | KeyFree
    | RequestNew
    | QueueUnchanged
    | NodeUnchanged
)

# --- writes -----------------------------------------------------------------------------------------------------------


class JobMoved(Value, frozen=True):
    """A recurring job after slots were accounted for; its definition stays the same."""

    id: JobId
    next_fire_at: datetime | None
    plan_at: datetime | None
    status: JobStatus


class OneShotRevised(Value, frozen=True):
    """A new version of a one-shot that still waits."""

    run: Run


class StopRequested(Value, frozen=True):
    """A stop request to the node that holds the run."""

    run_id: RunId
    reason: Reason


class Parked(Value, frozen=True):
    """A run that is not claimed until the run before it leaves their gate."""

    run_id: RunId


class LetterResolved(Value, frozen=True):
    """How a dead letter was resolved: `discarded`, or the id of the run that replaces it."""

    letter: Run
    resolution: str


class RunRestored(Value, frozen=True):
    """A run that ended long ago, back from the archive; retention treats it as if it had ended at `at`."""

    run: Run
    attempts: tuple[Attempt, ...]  # that did not succeed
    at: datetime


class GatesOf(Value, frozen=True):
    """Every gate that a node holds."""

    node: NodeId


class GateLeft(Value, frozen=True):
    """A run left a gate: the next parked run of the gate may be claimed, from `at` on."""

    gate: str
    at: datetime


class NewEvent(Value, frozen=True):
    """An event for listeners, about a job (`job.*`) or a run (`run.*`)."""

    kind: EventKind
    owner: str
    subject: str


Put = (
    Job
    | JobMoved
    | Run
    | OneShotRevised
    | StopRequested
    | Parked
    | LetterResolved
    | RunRestored
    | Skip
    | Backfill
    | KeyHolder
    | IdempotencyRecord
    | Declaration
    | ScheduleTrail
    | QueueSettings
    | Node
    | TaskSchema
)
Delete = Run | Skip | Backfill | KeyHolder | Declaration | Node | GatesOf


class Change(Value, frozen=True, kw_only=True):
    """A write that is atomic, and happens only if every guard holds.

    Deletes come before puts. What is put replaces what has its id or key; only a `Run` that is there stays, even
    if it is to be restored.
    """

    guards: tuple[Guard, ...] = ()
    deletes: tuple[Delete, ...] = ()
    puts: tuple[Put, ...] = ()
    gates_left: tuple[GateLeft, ...] = ()
    events: tuple[NewEvent, ...] = ()
    signals: tuple[Signal, ...] = ()


class Refusal(Value, frozen=True, kw_only=True):
    """The first guard of a change that does not hold, and the row that is in its way."""

    guard: Guard
    found: KeyHolder | IdempotencyRecord | None = None  # who holds the key, or the answer to the earlier request


# --- admission --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """The rows that the guards of a batch name, as they are while the store has them locked."""

    jobs: dict[JobId, JobUnchanged] = field(default_factory=dict)
    cancelled: set[JobId] = field(default_factory=set)  # recurring jobs and one-shots
    runs: dict[RunId, RunUnchanged] = field(default_factory=dict)  # live ones
    letters: set[RunId] = field(default_factory=set)
    backfills: dict[str, datetime] = field(default_factory=dict)  # id → start
    records: dict[Place, KeyHolder | IdempotencyRecord] = field(default_factory=dict)  # valid ones
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    nodes: dict[NodeId, datetime] = field(default_factory=dict)  # id → beat_at
    created: set[str] = field(default_factory=set)  # ids of jobs and runs that this batch writes

    def admit(self, change: Change) -> Refusal | None:
        """Check a change, and count what it writes as found for later changes; None when it is admitted."""
        for guard in change.guards:
            holds, instead = self._check(guard)
            if not holds:
                return Refusal(guard=guard, found=instead)
        self.created.update(guard.id for guard in change.guards if isinstance(guard, Absent))
        self._delete(change.deletes)
        self._put(change.puts)
        return None

    def _check(self, guard: Guard) -> tuple[bool, KeyHolder | IdempotencyRecord | None]:
        match guard:
            case JobUnchanged():
                return self.jobs.get(guard.id) == guard, None
            case JobNotCancelled():
                return guard.id not in self.cancelled, None
            case RunUnchanged():
                return self.runs.get(guard.id) == guard, None
            case RunLive():
                return guard.id in self.runs, None
            case Absent():
                there = guard.id in self.created or guard.id in self.jobs or guard.id in self.runs
                return not there, None
            case LetterOpen():
                return guard.id in self.letters, None
            case BackfillUnchanged():
                return self.backfills.get(guard.id) == guard.start, None
            case KeyFree(holder):
                instead = self.records.get(holder.place, holder)
                return instead == holder, instead
            case RequestNew(record):
                earlier = self.records.get(record.place)
                return earlier is None, earlier
            case QueueUnchanged(settings):
                return self.queues.get(settings.queue, QueueSettings(queue=settings.queue)) == settings, None
            case NodeUnchanged():
                return self.nodes.get(guard.id) == guard.beat_at, None
            case _:
                assert_never(guard)

    def _delete(self, deletes: Iterable[Delete]) -> None:
        for item in deletes:
            match item:
                case Run():
                    self.runs.pop(item.id, None)
                case Backfill():
                    self.backfills.pop(item.id, None)
                case KeyHolder():
                    self.records.pop(item.place, None)
                case Node():
                    self.nodes.pop(item.id, None)

    def _put(self, puts: Iterable[Put]) -> None:
        for item in puts:
            match item:
                case Run():  # most of them, so they come first; no guard is checked against a new run
                    continue
                case Job():
                    self.jobs[item.id] = JobUnchanged.of(item)
                case JobMoved():
                    before = self.jobs[item.id]
                    self.jobs[item.id] = replace(before, next_fire_at=item.next_fire_at, status=item.status)
                case OneShotRevised(run):
                    self.runs[run.id] = RunUnchanged.of(run)
                case StopRequested(run_id, reason):
                    self.runs[run_id] = replace(self.runs[run_id], stop=reason)
                case LetterResolved(letter):
                    self.letters.discard(letter.id)
                case Backfill():
                    self.backfills[item.id] = item.start
                case KeyHolder() | IdempotencyRecord():
                    self.records[item.place] = item
                case QueueSettings():
                    self.queues[item.queue] = item
