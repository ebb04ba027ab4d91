"""The store port: the only truth, asked coarsely and in batches.

Every verb takes many items, is atomic per item and answers per item; losing a race is an outcome, not an error. Stores
move rows and hold no rule: what a row becomes is decided in `core.plan` before a verb is called. `now` is always an
argument; only `time()` asks the backend for its clock. A backend that does not answer raises `Unavailable`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from horae.core.decisions import Due, Firing, Page, Rival, Settled
from horae.core.events import EventKind
from horae.core.model import (
    Attempt,
    Backfill,
    Job,
    JobError,
    JobId,
    JobStatus,
    Node,
    NodeId,
    Reason,
    Run,
    RunId,
    Skip,
    State,
)
from horae.core.values import Value
from horae.ports.blobs import Blobs

T = TypeVar("T", covariant=True)


class Kind(StrEnum):
    """What a signal is about."""

    DUE = "due"  # runs to claim, from `at` on
    PLAN = "plan"  # jobs for planners
    STOP = "stop"  # a stop request for runs of `node`
    ANY = "any"  # something changed; look at everything


class Signal(Value, frozen=True, kw_only=True):
    """A hint that saves a wait; may be lost, doubled or late."""

    kind: Kind
    at: datetime | None = None
    node: NodeId | None = None


class ClaimRequest(Value, frozen=True, kw_only=True):
    """What a worker can take."""

    node: NodeId
    queues: Sequence[str]  # empty means every queue
    tasks: Sequence[str]
    now: datetime
    until: datetime  # claim what wakes up to here
    floor: datetime | None = None  # ignore what woke before; None scans from the beginning
    limit: int = 1000
    full_gates: Sequence[str] = ()  # gates of which this node already holds enough: the rest is contested
    free_gates: Sequence[str] = ()  # gates that this node holds without a run; freed unless their next run is taken
    undecided_gates: Collection[str] = ()  # gates of others of which a claim just told what is due: it is passed over


class Contested(Value, frozen=True, kw_only=True):
    """A run that is due while another node, or an earlier run that waits, is ahead of it in its gate."""

    run: Run
    rivals: Sequence[Rival]


class Claims(Value, frozen=True, kw_only=True):
    """What a claim brought."""

    alive: bool = True  # False: the node was declared dead; it must stop all it holds and register anew
    runs: Sequence[Run] = ()
    contested: Sequence[Contested] = ()
    more: bool = False  # the look ended at its limit: there may be more to claim right now
    first_at: datetime | None = None  # when the first of what was looked at woke; None when the store does not tell
    next_at: datetime | None = None  # unless there is more: when the next run wakes that was not offered to this node
    lined_up_at: datetime | None = None  # when the first wakes of those that come next in gates of which one was taken


class Plannable(Value, frozen=True, kw_only=True):
    """What planners of some shards should look at now."""

    jobs: Sequence[Due]
    backfills: Sequence[tuple[Backfill, Due]]
    next_at: datetime | None  # when there is something again


class JobChange(Value, frozen=True, kw_only=True):
    """A new version of a recurring job, written only if its revision is still `expected`, and its status `was`.

    A resume and the end of a job change its status without a new revision; `was` None takes any.
    With `retract_after`, waiting runs of its schedule that are due later than that are taken back (deleted, with later
    skips), and those that a node already holds and has not started get the stop request `stop` if one is given. With
    `rewind`, `next_fire_at` is not taken from `job`, for a planner may have moved it since that was read: it stays as
    the store has it, or becomes the earliest slot taken back, if that is earlier.
    """

    job: Job
    expected: int
    was: JobStatus | None = None
    retract_after: datetime | None = None
    rewind: bool = False
    stop: Reason | None = None
    event: EventKind | None = None  # what listeners are told, if anything


class Changed(Value, frozen=True, kw_only=True):
    """The job as it was written, and the runs that were asked to stop."""

    job: Job
    stopped: Sequence[RunId] = ()


NOBODY = JobId("")  # holds the key of nothing: what was to be created was not, for its job is cancelled

RECEIPT_LIFE = timedelta(hours=24)  # how long a repeated request is recognised
EVENT_LIFE = timedelta(hours=24)  # how long a listener can come back for what it missed


class Receipt(Value, frozen=True, kw_only=True):
    """The answer to a request that its sender may repeat; one per owner and key, for RECEIPT_LIFE."""

    owner: str
    key: str
    fingerprint: str  # of the request: another one under the same key is a mistake
    answer: str
    created_at: datetime


class Receipted(Value, frozen=True, kw_only=True):
    """Something to create together with its receipt: both are written, or neither."""

    item: Run | Firing
    receipt: Receipt


class Resolution(Value, frozen=True, kw_only=True):
    """What becomes of a dead letter: the run that replaces it, or nothing when it is discarded."""

    run_id: RunId
    successor: Run | None = None
    receipt: Receipt | None = None


class Declaration(Value, frozen=True, kw_only=True):
    """A version of a schedule that some code declared; of several under one key the one seen last holds."""

    app: str
    key: str
    digest: str
    seen_at: datetime


class EventBatch(Value, frozen=True, kw_only=True):
    """Events of one kind and owner that were committed together."""

    position: str  # of this batch in the order of all: numbers with dots between, which have that order
    kind: EventKind
    owner: str
    at: datetime
    subjects: Sequence[str]  # ids of jobs (`job.*`) or runs (`run.*`)


class Retraction(StrEnum):
    """What became of a held run that was to be taken back."""

    TAKEN_BACK = "taken_back"  # it is gone, and its slot is open again
    GOES_ON = "goes_on"  # its job is active again, or the run is already due
    OVER = "over"  # its job is over


class Beat(Value, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    nodes: Sequence[Node]  # that beat within dead_after


class RunFilter(Value, frozen=True, kw_only=True):
    """Which runs to list; None means any. `owner` None is for administrators and the engine itself."""

    owner: str | None = None
    job_id: JobId | None = None
    states: frozenset[State] | None = None
    due: bool | None = None  # among waiting runs: whether `due_at` has come (`now` must be given)
    stopping: bool | None = None  # whether a cancel is being confirmed
    task: str | None = None
    queue: str | None = None
    start_at: datetime | None = None  # due_at >= start_at
    end_at: datetime | None = None  # due_at < end_at
    dead_letters: bool = False  # only failed runs that nobody has resolved
    error_type: str | None = None  # with `dead_letters`: of the last attempt
    now: datetime | None = None


class ErrorGroup(Value, frozen=True, kw_only=True):
    """Dead letters that failed alike."""

    error: JobError
    count: int
    oldest_at: datetime  # by due time
    newest_at: datetime
    task: str
    example: RunId  # the newest


class JobFilter(Value, frozen=True, kw_only=True):
    """Which jobs to list, one-shots among them; None means any."""

    owner: str | None = None
    status: JobStatus | None = None
    last_run_states: frozenset[State] | None = None
    task: str | None = None
    name: str | None = None
    key: str | None = None
    queue: str | None = None
    label: tuple[str, str | None] | None = None  # name, and value unless any will do
    text: str | None = None  # part of name, task or key, in any case
    now: datetime | None = None  # with `last_run_states`: a run that is due later is not the last one


class Listing(Value, Generic[T], frozen=True, kw_only=True):
    """One page; `cursor` continues after its last item, None at the end. Opaque to everyone but the store."""

    items: Sequence[T]
    cursor: str | None


class Ledger(Value, frozen=True, kw_only=True):
    """What is known of the slots of a job within a range, oldest first."""

    runs: Sequence[Run]  # of the schedule (backfills by users and manual runs fill no slot)
    skips: Sequence[Skip]
    backfills: Sequence[Backfill]  # slots still to be turned into runs, also those that users fill


class QueueDepth(Value, frozen=True, kw_only=True):
    """The state of one queue."""

    queue: str
    depth: int  # due and not started, counted up to 10,000
    oldest_due_at: datetime | None
    running: int
    paused: bool = False
    concurrency: int | None = None  # at most so many of its runs are held by all nodes together; None: any number


class QueueSettings(Value, frozen=True, kw_only=True):
    """What administrators say about a queue."""

    queue: str
    paused: bool = False  # nothing of it is claimed; what a node already holds goes on
    concurrency: int | None = None


SETTINGS = ("paused", "concurrency")  # what can be said about a queue


class Reader(Protocol):
    """Look-ups and lists; `owner` None means any owner's."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | Run | None:
        """The job; a one-shot comes as its run, whether it is alive or ended."""

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """The run, alive or ended."""

    async def runs(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
        """Many runs, alive or ended, whoever owns them; those that are not there are left out."""

    async def ended(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Those of the runs that have ended, in any order: for whoever waits for many."""

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job | Run]:
        """Many jobs, whoever owns them; those that are not there are left out."""

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """The attempts of a run that did not succeed, oldest first."""

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        """For each job its latest run that is already due, if there is one."""

    async def list_jobs(self, which: JobFilter, *, cursor: str | None, limit: int) -> Listing[Job | Run]:
        """Newest first."""

    async def list_runs(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """By due time, latest first."""

    async def ledger(self, job_id: JobId, *, start: datetime, end: datetime, limit: int) -> Ledger:
        """What is known of the slots with start <= slot <= end; at most `limit` runs, the oldest."""

    async def nodes(self) -> list[Node]:
        """Every node that is registered, dead ones that nobody buried yet included."""

    async def tasks(self) -> Mapping[str, str]:
        """Every task that a node ever registered, with the JSON schema of its parameters."""

    async def queues(self, *, now: datetime, owner: str | None = None) -> list[QueueDepth]:
        """The queues that have live runs (of an owner), and without an owner also those that have settings."""

    async def queue_lateness(self, *, since: datetime, owner: str | None = None) -> Mapping[str, timedelta]:
        """For each queue the 99th percentile of the lateness of runs that ended lately.

        Looked at are at most 1,000 runs a queue, the latest that were due after `since` and did start.
        """

    async def queue_settings(self, queue: str) -> QueueSettings:
        """What was said about a queue; the defaults when nothing was."""

    async def job_by_key(self, owner: str, key: str) -> Job | Run | None:
        """The unfinished job that holds a key."""

    async def attempts_of(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        """The attempts of many runs that did not succeed, oldest first; runs without any are left out."""

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        """What a waiting run waits for in its gate, earliest first.

        Live runs before it or held in its gate, and dead letters before it that block it.
        """

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Dead letters by task and error, the most frequent first; of at most 10,000 letters, the latest."""

    async def receipt(self, owner: str, key: str, *, now: datetime) -> Receipt | None:
        """The receipt of an earlier request under this key, while it is valid."""

    async def events(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        """Batches in an order that never changes, those after a position; None begins with the oldest that is kept.

        A batch is listed only when nothing can still be committed before it.
        """

    async def last_event(self) -> str:
        """A position such that `events` after it brings what happens from now on."""

    async def declarations(self, owner: str) -> list[Declaration]:
        """Every version of every declared schedule of an owner that was not forgotten."""

    async def dead_letters(self) -> int:
        """How many failed runs nobody has resolved, counted up to 10,000."""


class Store(Reader, Protocol):
    """The truth about jobs, runs and nodes."""

    @property
    def blobs(self) -> Blobs:
        """Blobs that are kept in the store itself."""

    async def open(self) -> None:
        """Connect, and check that the schema is the one this version expects."""

    async def close(self) -> None:
        """Finish what was begun and let go of every connection."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns how to stop that."""

    async def time(self) -> datetime:
        """The clock of the store: the one every node follows."""

    # creating and firing

    async def create(self, items: Sequence[Run | Firing | Receipted]) -> list[JobId | Receipt]:
        """Write one-shots, manual runs (as runs) and recurring jobs (as their first firing).

        Answers for each the id of the job that holds its key: its own when it was written, another's when not. When a
        valid receipt has the same owner and key nothing is written, and that receipt is the answer. A manual run whose
        job is cancelled (`core.changes.status_of`) is not written, nor its receipt, and the answer is NOBODY: whoever
        cancels the job either finds the run or is found by it.
        """

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Apply each firing unless somebody moved the job first.

        A run is not made of a slot that has an ended one: it was cancelled ahead of its time, and stays so.
        """

    async def fill(self, pages: Sequence[Page]) -> list[bool]:
        """Apply each page of a backfill unless somebody moved it first; a page without further slots ends it."""

    async def backfill(self, backfill: Backfill, receipt: Receipt | None = None) -> bool | Receipt:
        """Begin a backfill, or answer the earlier receipt and do nothing; False when its job is cancelled."""

    async def change(self, change: JobChange) -> Changed | None:
        """Write a new version of a job; None when it has moved on."""

    async def change_one_shot(self, run: Run, *, expected: int, event: EventKind | None = None) -> bool:
        """Write a new version of a one-shot that still waits; False when it moved on."""

    # the life of a run

    async def claim(self, request: ClaimRequest) -> Claims:
        """Take runs for a node: by priority, from queues in turn, of a queue from owners in turn, by wake-up time.

        Owners whose band is the same (`core.model.band_of`) count as one.

        A run with a gate is taken only while the gate is free or this node's and every live run before it (by due_at,
        then id) is this node's too; at most one more per gate and call. Runs that are due but blocked come back as
        contested.
        """

    async def start(self, runs: Sequence[Run]) -> list[bool]:
        """Write that attempts began, or their progress, if the fences still hold."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        """Write results of held runs if their fences still hold; False means the run moved on and the result is void.

        A final state moves the run to the history, and wakes the next parked run of its gate.
        """

    async def end_waiting(self, results: Sequence[Settled]) -> list[bool]:
        """End runs that nobody holds (cancelled or skipped), if they still wait with the same fence."""

    async def park(self, runs: Sequence[Run]) -> None:
        """Keep blocked runs away from claims until the run before them ends."""

    async def request_stop(self, run_ids: Sequence[RunId], reason: Reason) -> list[NodeId | None]:
        """Ask the nodes that hold the runs to stop them; None where nobody holds it."""

    async def retract(self, runs: Sequence[Run], *, now: datetime) -> list[Retraction]:
        """Take back held runs of paused jobs that their node has not started and that are not due yet.

        They are deleted, and `next_fire_at` of their job goes back to their slot, unless a later slot has its run.
        """

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        """The stop requests that are open for runs which a node holds."""

    async def held(self, runs: Sequence[Run]) -> list[bool]:
        """Which of the runs their nodes still hold under the same fence: what may go on after a doubt."""

    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        """Everything that a node holds of what wakes up to a moment; to look for it may take a while."""

    async def resolve(self, resolutions: Sequence[Resolution], *, now: datetime) -> list[bool | Receipt]:
        """Resolve dead letters, each with the creation of its successor; False where it is none (any more).

        What the letter blocked in its gate is free again, behind the successor.
        """

    # repeated requests, queues, declared schedules

    async def keep_receipt(self, receipt: Receipt) -> Receipt:
        """Keep the answer to an act that is over, unless there is one already; the receipt that holds."""

    async def set_queue(self, settings: QueueSettings, *, fields: Collection[str] = SETTINGS) -> None:
        """Say something about a queue: of the settings those fields, while the others stay as they are."""

    async def declare(self, owner: str, declarations: Sequence[Declaration], *, renew: bool = False) -> None:
        """Note versions of schedules that were not seen before; with `renew` seen ones count as seen now."""

    async def forget(self, owner: str, *, app: str, keys: Sequence[str]) -> None:
        """Forget every version of some declared schedules."""

    # nodes

    async def register(self, node: Node) -> None:
        """Make a node and its tasks known."""

    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        """Renew a node's lease, and tell how it stands; None when it was buried."""

    async def unregister(self, node: NodeId) -> None:
        """A node leaves in order; its gates are free."""

    async def bury(self, *, now: datetime, dead_after: timedelta) -> list[NodeId]:
        """Remove nodes whose last beat is older; from here on they can claim and beat no more."""

    async def orphans(self, *, limit: int) -> list[Run]:
        """Held runs whose node is not registered."""

    async def tidy(self, *, now: datetime) -> int:
        """Free gates of nodes that are gone, and wake parked runs that nothing blocks; how many were found."""

    # history

    async def expire(self, *, now: datetime, limit: int) -> int:
        """Delete receipts older than RECEIPT_LIFE and events older than EVENT_LIFE; how many rows, 0 when done."""

    async def prune(self, *, before: date, limit: int) -> int:
        """Drop history, attempts, skips and blobs of days before; how many rows or days went, 0 when done."""
