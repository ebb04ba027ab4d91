"""Sends heartbeats: they renew the lease, follow the store's clock and report which nodes are alive."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from horae.core.effects import register_node
from horae.core.model import Node, NodeId
from horae.core.values import replace
from horae.engine.cluster.lease import Lease, Timing
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)

LOUD_OFFSET = timedelta(seconds=1)


class Heartbeat:
    """The registration of one node, and the heartbeats that keep it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease: Lease,
        node: Node,
        timing: Timing,
        metrics: Metrics,
        *,
        new_id: Callable[[], str],
        running: Callable[[], int],
        wall_ahead: Callable[[], timedelta] = timedelta,
    ) -> None:
        """`running` returns the attempts under way, `wall_ahead` the offset of the machine's wall clock."""
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing
        self._metrics = metrics
        self._running = running
        self._wall_ahead = wall_ahead
        self._new_id = new_id
        self.node = node
        self.nodes: Sequence[Node] = (node,)
        self.rejoin = False  # set once everything that the dead identity held is abandoned

    async def tick(self) -> datetime | None:
        """Send one heartbeat; returns when to send the next."""
        if self.rejoin:
            self.rejoin = False
            await self.join()
            log.warning("node_rejoined", node=self.node.id, host=self.node.name)
        asked_at = await self._sync()
        beat = await self._store.beat(
            self.node.id,
            now=self._clock.now(),
            running=self._running(),
            dead_after=self._timing.dead_after,
            wall_ahead=self._wall_offset(),
        )
        if beat is None:
            self._lease.lost = True
        else:
            self._lease.renew(asked_at)
            self.nodes = beat.nodes
        self._metrics.synced(self._clock.offset)
        return self._clock.now() + self._timing.heartbeat

    async def join(self) -> None:
        """Register under a new id; a node that was declared dead comes back as another."""
        asked_at = await self._sync()
        now, wall_ahead = self._clock.now(), self._wall_offset()
        node = replace(self.node, id=NodeId(self._new_id()), started_at=now, beat_at=now, wall_ahead=wall_ahead)
        await self._store.apply([register_node(node)])
        self.node = node
        self.nodes = (*self.nodes, node)
        self._lease.renew(asked_at)

    def _wall_offset(self) -> timedelta:
        ahead = self._wall_ahead()
        self._metrics.wall_seen(ahead)
        return ahead

    async def _sync(self) -> float:
        """Follow the store's clock; returns when the request was sent, by the monotonic clock."""
        asked_at = self._clock.elapsed()
        store_time = await self._store.time()
        self._clock.sync(store_time, asked_at=asked_at, answered_at=self._clock.elapsed())
        if abs(self._clock.offset) > LOUD_OFFSET:
            log.warning("clock_offset", seconds=self._clock.offset.total_seconds())
        return asked_at
