"""Being a node: its identity, its lease kept by heartbeats, and its share of the planner shards."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import structlog

from horae.core.model import SHARDS, Node, NodeId
from horae.core.values import replace
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)

LOUD_OFFSET = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The intervals that a cluster agrees on."""

    heartbeat: timedelta = timedelta(seconds=3)
    dead_after: timedelta = timedelta(seconds=15)
    horizon: timedelta = timedelta(seconds=30)
    lead: timedelta = timedelta(seconds=1)
    drain: timedelta = timedelta(seconds=30)

    @property
    def margin(self) -> timedelta:
        """How long before its lease may be lost a worker starts nothing more."""
        return min(self.dead_after / 5, timedelta(seconds=2))

    @property
    def missed_after(self) -> timedelta:
        """When others plan for a node that is not heard of: long before it is buried, for that does no harm."""
        return 3 * self.heartbeat


class Lease:
    """Whether this node may still act for itself: written by the heartbeat, read before anything is started."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._timing = timing
        self._renewed = clock.elapsed()
        self._safe_since: float | None = None  # None: it was never in doubt
        self.lost = False  # the node was buried; only a new identity helps

    def renew(self, asked_at: float) -> None:
        """A heartbeat that was sent at `asked_at` (by the steady clock) was accepted."""
        if not self.safe:
            self._safe_since = asked_at
        self._renewed = asked_at
        self.lost = False

    @property
    def age(self) -> timedelta:
        """Time since the last heartbeat that is known to have arrived."""
        return timedelta(seconds=self._clock.elapsed() - self._renewed)

    @property
    def safe(self) -> bool:
        """Whether runs may be started: nobody can have buried us yet, with a margin."""
        return not self.lost and self.age < self._timing.dead_after - self._timing.margin

    @property
    def safe_for(self) -> timedelta:
        """How long ago the lease was last in doubt."""
        return (
            timedelta.max if self._safe_since is None else timedelta(seconds=self._clock.elapsed() - self._safe_since)
        )

    @property
    def expired(self) -> bool:
        """Whether others may by now have been given our runs."""
        return self.lost or self.age >= self._timing.dead_after


class Heartbeat:
    """Renews the lease, follows the store's clock, and knows who else is alive."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease: Lease,
        node: Node,
        timing: Timing,
        *,
        new_id: Callable[[], str],
        running: Callable[[], int],
        beaten: Callable[[], None],
        wall_ahead: Callable[[], timedelta] = timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing
        self._running = running
        self._beaten = beaten
        self._wall_ahead = wall_ahead
        self._new_id = new_id
        self.node = node
        self.nodes: Sequence[Node] = (node,)
        self.rejoin = False  # set once everything that the buried identity held is abandoned

    async def tick(self) -> datetime | None:
        """Beat once; answers when to beat again."""
        if self.rejoin:
            self.rejoin = False
            await self.join()
            log.warning("node_rejoined", node=self.node.id)
        asked_at = await self._sync()
        beat = await self._store.beat(
            self.node.id,
            now=self._clock.now(),
            running=self._running(),
            dead_after=self._timing.dead_after,
            wall_ahead=self._wall_ahead(),
        )
        if beat is None:
            self._lease.lost = True
        else:
            self._lease.renew(asked_at)
            self.nodes = beat.nodes
        self._beaten()
        return self._clock.now() + self._timing.heartbeat

    async def join(self) -> None:
        """Register under a new id; a node that was buried comes back as another."""
        asked_at = await self._sync()
        now = self._clock.now()
        node = replace(self.node, id=NodeId(self._new_id()), started_at=now, beat_at=now, wall_ahead=self._wall_ahead())
        await self._store.register(node)
        self.node = node
        self.nodes = (*self.nodes, node)
        self._lease.renew(asked_at)

    async def _sync(self) -> float:
        """Follow the store's clock; answers when, by the steady clock, it was asked."""
        asked_at = self._clock.elapsed()
        store_time = await self._store.time()
        self._clock.sync(store_time, asked_at=asked_at, answered_at=self._clock.elapsed())
        if abs(self._clock.offset) > LOUD_OFFSET:
            log.warning("clock_offset", seconds=self._clock.offset.total_seconds())
        return asked_at


def shards_of(node_id: NodeId, nodes: Sequence[Node], *, heard_since: datetime) -> list[int]:
    """The planner shards of a node, by rendezvous hash over the planners that were heard of since then.

    Nodes that disagree only do double work. So one that is missed is counted out early: to wait until it is buried
    could hand its shards to the next that is killed, and leave them without a plan for longer than the horizon.
    """
    planners = frozenset(node.id for node in nodes if "planner" in node.roles and node.beat_at >= heard_since)
    return _share(node_id, planners | {node_id})


@lru_cache(64)
def _share(node_id: NodeId, planners: frozenset[NodeId]) -> list[int]:
    def owner(shard: int) -> NodeId:
        return max(planners, key=lambda planner: _score(planner, shard))

    return [shard for shard in range(SHARDS) if owner(shard) == node_id]


def _score(node_id: NodeId, shard: int) -> bytes:
    return hashlib.blake2b(f"{node_id}:{shard}".encode(), digest_size=8).digest()
