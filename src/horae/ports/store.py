"""The store port: what the engine and the use cases write, in batches.

Every verb takes many items, is atomic per item and answers per item; losing a race is an outcome, not an error. Stores
move rows and hold no rule: what a row becomes is decided in the core before a verb is called. `now` is always an
argument; only `time()` asks the backend for its clock. A backend that does not answer raises `Unavailable`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from horae.core.events import EventKind
from horae.core.firing import Due, Firing, Page
from horae.core.model import Backfill, Job, JobId, JobStatus, Node, NodeId, Reason, Run, RunId
from horae.core.records import SETTINGS, Declaration, QueueSettings, Receipt
from horae.core.release import Rival
from horae.core.results import Settled
from horae.core.signals import Signal
from horae.core.values import Value
from horae.ports.blobs import Blobs
from horae.ports.reader import Reader


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


class Receipted(Value, frozen=True, kw_only=True):
    """Something to create together with its receipt: both are written, or neither."""

    item: Run | Firing
    receipt: Receipt


class Resolution(Value, frozen=True, kw_only=True):
    """What becomes of a dead letter: the run that replaces it, or nothing when it is discarded."""

    run_id: RunId
    successor: Run | None = None
    receipt: Receipt | None = None


class Retraction(StrEnum):
    """What became of a held run that was to be taken back."""

    TAKEN_BACK = "taken_back"  # it is gone, and its slot is open again
    GOES_ON = "goes_on"  # its job is active again, or the run is already due
    OVER = "over"  # its job is over


class Beat(Value, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    nodes: Sequence[Node]  # that beat within dead_after


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
        job is cancelled is not written, nor its receipt, and the answer is NOBODY: whoever
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
