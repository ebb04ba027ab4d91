"""The store port: what the engine and the use cases write, in batches.

Every verb takes many items, is atomic per item and answers per item; losing a race is an outcome, not an error. Stores
move rows and hold no rule: what a row becomes is decided in the core before a verb is called. `now` is always an
argument; only `time()` asks the backend for its clock. A backend that does not answer raises `Unavailable`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Protocol

from horae.core.changes import Change, Refusal
from horae.core.decisions.fairness import Lane
from horae.core.decisions.firing import Due
from horae.core.decisions.release import Rival
from horae.core.decisions.results import Settled
from horae.core.model import Backfill, Node, NodeId, Reason, Run, RunId
from horae.core.tickets import Ticket
from horae.core.values import Value
from horae.ports.blobs import Blobs
from horae.ports.database import Database
from horae.ports.events import EventLog
from horae.ports.reader import Reader


class ClaimRequest(Value, frozen=True, kw_only=True):
    """What a worker can take."""

    node: NodeId
    queues: Sequence[str]  # empty means every queue
    tasks: Sequence[str]
    now: datetime
    until: datetime  # claim what wakes up to here
    floor: datetime | None = None  # ignore what woke before; None scans from the beginning
    left: Mapping[Lane, datetime] = {}  # where to begin in queues with a limit; other lanes of them from the beginning
    limit: int = 1000
    per_gate: int = 1  # runs of one gate to take at most; a store may take fewer
    full_gates: Sequence[str] = ()  # gates of which this node already holds enough: the rest is contested
    free_gates: Sequence[str] = ()  # gates that this node holds without a run; freed unless their next run is taken
    undecided_gates: Collection[str] = ()  # gates of others whose due runs a claim just returned: skip them
    among: Sequence[RunId] | None = None  # claim none but these, whatever the floor; None: what the lanes have


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
    left_at: datetime | None = None  # of what was not taken: when the first wakes after now, if the store tells
    lined_up_at: datetime | None = None  # when the first wakes of those next in gates of which some were taken
    left: Mapping[Lane, datetime] = {}  # lanes of queues with a limit: when the first wakes of those that still wait
    waiting: Mapping[RunId, datetime] = {}  # of `among`: those that stay and may be claimed later, and when they wake


class Waiting(Value, frozen=True, kw_only=True):
    """A page of tickets of what waits, in the order of their time."""

    tickets: Sequence[Ticket]
    cursor: str | None  # continues after it, and only the store can read it; None at the end


class Plannable(Value, frozen=True, kw_only=True):
    """What planners of some shards should look at now."""

    jobs: Sequence[Due]
    backfills: Sequence[tuple[Backfill, Due]]
    next_at: datetime | None  # when there is something again


class EndedRuns(Value, frozen=True, kw_only=True):
    """A page of the runs that ended on one day, for the archive."""

    day: date  # in UTC
    runs: Sequence[Run]  # fewer than were asked for: these are the last of the day


class Beat(Value, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    nodes: Sequence[Node]  # that beat within dead_after


class Store(Reader, Database, Protocol):
    """The truth about jobs, runs and nodes."""

    @property
    def blobs(self) -> Blobs:
        """Blobs that are kept in the store itself."""

    @property
    def events(self) -> EventLog:
        """The event log."""

    async def time(self) -> datetime:
        """The clock of the store: the one every node follows."""

    # --- changes

    async def create(self, runs: Sequence[Run]) -> None:
        """Write one-shots that have no key; those that are there already, because they are sent again, stay."""

    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        """Write each change whose guards hold; None, or the guard that does not. Earlier ones of the batch count."""

    # --- planning

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""

    # --- the life of a run

    async def claim(self, request: ClaimRequest) -> Claims:
        """Take runs for a node, shared out among lanes by `core.decisions.fairness`, within a lane by wake-up time.

        A run with a gate is taken only while the gate is free or this node's and every live run before it (by due_at,
        then id) is this node's too; at most `per_gate` more per gate and call. Runs that are due but blocked come back
        as contested.

        With `among`, what comes back neither as claimed, contested nor waiting is void: it was held, parked or paused
        meanwhile, or has ended. Of what there is beside these runs nothing is told.
        """

    async def waiting(
        self,
        shards: Sequence[int],
        *,
        since: datetime | None,
        until: datetime,
        cursor: str | None,
        limit: int,
        gates: Sequence[str] | None = None,
    ) -> Waiting:
        """Return tickets of runs of these shards (`shard_of` their id) that wake from `since` up to `until`.

        They can be claimed: nobody holds them, and neither they nor their queue are paused, nor are they parked.
        `since` None is the beginning. With `gates` only the runs that come next in each of these, whatever the limit.
        """

    async def start(self, runs: Sequence[Run]) -> list[bool]:
        """Write that attempts began, or their progress, if the fences still hold."""

    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        """Write results if the fences still hold; False means the run moved on and the result is void.

        A final state moves the run to the history, with `core.effects.effects_of_end`; of a run that waited only a
        final state is written.
        """

    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        """The stop requests that are open for runs which a node holds."""

    async def still_held(self, runs: Sequence[Run]) -> list[bool]:
        """Which of the runs their nodes still hold under the same fence: what may go on after a doubt."""

    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        """Everything that a node holds of what wakes up to a moment; to look for it may take a while."""

    async def orphans(self, *, limit: int) -> list[Run]:
        """Held runs whose node is not registered."""

    # --- upkeep

    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        """Renew a node's lease; None when the node was removed as dead."""

    async def tidy(self, *, now: datetime) -> int:
        """Free gates of nodes that are gone, and wake parked runs that nothing blocks; how many were found."""

    async def ended(self, *, before: date, after: Run | None = None, limit: int) -> EndedRuns | None:
        """Return runs of the earliest day before `before` of which there is history, or of the day that `after` ended.

        They come in an order that never changes, from the run behind `after` on; those that were restored from the
        archive are left out. None when there is no such day. A store that lets history expire by itself keeps it until
        it is pruned, when it was opened with an archive.
        """

    async def prune(self, *, now: datetime, before: date, limit: int, runs: int | None = None) -> int:
        """Delete what is past its life, at most `limit` rows of each kind; how many rows, 0 when done.

        That is idempotency records and events, by `now`, and history, attempts, skips, blobs and cancelled jobs of days
        before `before`. With `runs`, which is how many runs of these days the archive has, history stays as long as
        there are more of it. What was restored from the archive counts by the time at which that was.
        """
