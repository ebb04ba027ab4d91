"""The store port: the only truth, asked coarsely and in batches.

Every verb takes many items, is atomic per item and answers per item; losing a race is an outcome, not an error. Stores
move rows and hold no rule: what a row becomes is decided in `core.plan` before a verb is called. `now` is always an
argument; only `time()` asks the backend for its clock. A backend that does not answer raises `Unavailable`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from horae.blob import Blobs
from horae.core.model import Attempt, Backfill, Job, JobId, JobStatus, Node, NodeId, Reason, Run, RunId, Skip, State
from horae.core.plan import Due, Firing, Page, Rival, Settled

T = TypeVar("T", covariant=True)


class Kind(StrEnum):
    """What a signal is about."""

    DUE = "due"  # runs to claim, from `at` on
    PLAN = "plan"  # jobs for planners
    STOP = "stop"  # a stop request for runs of `node`
    ANY = "any"  # something changed; look at everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A hint that saves a wait; may be lost, doubled or late."""

    kind: Kind
    at: datetime | None = None
    node: NodeId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker can take."""

    node: NodeId
    queues: Sequence[str]  # empty means every queue
    tasks: Sequence[str]
    now: datetime
    until: datetime  # claim what wakes up to here
    floor: datetime | None = None  # ignore what woke before; None scans from the beginning
    limit: int = 1000
    full_gates: Sequence[str] = ()  # gates of which this node already holds enough: the rest is contested
    free_gates: Sequence[str] = ()  # gates that this node holds and no longer needs; freed before claiming


@dataclass(frozen=True, slots=True, kw_only=True)
class Contested:
    """A run that is due while another node, or an earlier run that waits, is ahead of it in its gate."""

    run: Run
    rivals: Sequence[Rival]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a claim brought."""

    alive: bool = True  # False: the node was declared dead; it must stop all it holds and register anew
    runs: Sequence[Run] = ()
    contested: Sequence[Contested] = ()
    more: bool = False  # the look ended at its limit: there may be more to claim right now
    next_at: datetime | None = None  # when the next run wakes that this node could claim and was not yet offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Plannable:
    """What planners of some shards should look at now."""

    jobs: Sequence[Due]
    backfills: Sequence[tuple[Backfill, Due]]
    next_at: datetime | None  # when there is something again


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A new version of a recurring job, written only if its revision is still `expected`.

    With `retract_after`, waiting runs of its schedule that are due later than that are taken back (deleted, with later
    skips), and those that a node already holds and has not started get the stop request `stop` if one is given. With
    `rewind`, `next_fire_at` is not taken from `job`, for a planner may have moved it since that was read: it stays as
    the store has it, or becomes the earliest slot taken back, if that is earlier.
    """

    job: Job
    expected: int
    retract_after: datetime | None = None
    rewind: bool = False
    stop: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The job as it was written, and the runs that were asked to stop."""

    job: Job
    stopped: Sequence[RunId] = ()


class Retraction(StrEnum):
    """What became of a held run that was to be taken back."""

    TAKEN_BACK = "taken_back"  # it is gone, and its slot is open again
    GOES_ON = "goes_on"  # its job is active again, or the run is already due
    OVER = "over"  # its job is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The answer to a heartbeat."""

    nodes: Sequence[Node]  # that beat within dead_after


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
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
    now: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """One page; `cursor` continues after its last item, None at the end. Opaque to everyone but the store."""

    items: Sequence[T]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known of the slots of a job within a range, oldest first."""

    runs: Sequence[Run]  # of the schedule (backfills by users and manual runs fill no slot)
    skips: Sequence[Skip]
    backfills: Sequence[Backfill]  # slots still to be turned into runs


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """The state of one queue."""

    queue: str
    depth: int  # due and not started, counted up to 10,000
    oldest_due_at: datetime | None
    running: int


class Reader(Protocol):
    """Look-ups and lists; `owner` None means any owner's."""

    async def job(self, job_id: JobId, *, owner: str | None) -> Job | Run | None:
        """The job; a one-shot comes as its run, whether it is alive or ended."""

    async def run(self, run_id: RunId, *, owner: str | None) -> Run | None:
        """The run, alive or ended."""

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

    async def queues(self, *, now: datetime) -> list[QueueDepth]:
        """The queues that have live runs."""

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

    async def create(self, items: Sequence[Run | Firing]) -> list[JobId]:
        """Write one-shots, manual runs (as runs) and recurring jobs (as their first firing).

        Answers for each the id of the job that holds its key: its own when it was written, another's when not.
        """

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Apply each firing unless somebody moved the job first."""

    async def fill(self, pages: Sequence[Page]) -> list[bool]:
        """Apply each page of a backfill unless somebody moved it first; a page without further slots ends it."""

    async def backfill(self, backfills: Sequence[Backfill]) -> None:
        """Begin backfills."""

    async def change(self, change: JobChange) -> Changed | None:
        """Write a new version of a job; None when its revision has moved on."""

    async def change_one_shot(self, run: Run, *, expected: int) -> bool:
        """Write a new version of a one-shot that still waits; False when it moved on."""

    # the life of a run

    async def claim(self, request: ClaimRequest) -> Claims:
        """Take runs for a node: by priority, then by wake-up time.

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

    async def held(self, node: NodeId) -> Mapping[RunId, int]:
        """The runs that a node holds, with their fences: what it may go on with after a doubt."""

    # nodes

    async def register(self, node: Node) -> None:
        """Make a node and its tasks known."""

    async def beat(self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta) -> Beat | None:
        """Renew a node's lease; None when it was buried."""

    async def unregister(self, node: NodeId) -> None:
        """A node leaves in order; its gates are free."""

    async def bury(self, *, now: datetime, dead_after: timedelta) -> list[NodeId]:
        """Remove nodes whose last beat is older; from here on they can claim and beat no more."""

    async def orphans(self, *, limit: int) -> list[Run]:
        """Held runs whose node is not registered."""

    async def tidy(self, *, now: datetime) -> int:
        """Free gates of nodes that are gone, and wake parked runs that nothing blocks; how many were found."""

    # history

    async def prune(self, *, before: date, limit: int) -> int:
        """Drop history, attempts, skips and blobs of days before; how many rows or days went, 0 when done."""
