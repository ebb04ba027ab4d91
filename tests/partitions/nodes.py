"""The real duties of a node in virtual time, each node with a store of its own."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, cast

from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.heartbeat_thread import HeartbeatThread
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.shards import shards_of
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.duties.watcher import Watcher
from horae.engine.execution.executor import Executor
from horae.engine.node import NodeService
from horae.engine.worker.worker import Worker
from horae.metrics import Metrics
from horae.offering import offering_store
from horae.ports.queue import Queue
from horae.ports.store import Store
from horae.tasks.registry import Registry
from tests.partitions.virtual import VirtualClock
from tests.simulation.host import HeartbeatTask

METRICS = Metrics()  # one for all nodes: creating them takes longer than everything else


@asynccontextmanager
async def in_front(store: Store, queue: Queue | None, clock: VirtualClock, timing: Timing) -> AsyncIterator[Store]:
    """A store whose writes offer tickets to the queue in front of it, if there is one."""
    if queue is None:
        yield store
        return
    async with offering_store(store, queue, cast(Any, clock), METRICS.tickets, horizon=timing.horizon) as offering:
        yield offering


class SimulatedNode:
    """One process with the roles of planner and worker."""

    def __init__(
        self,
        number: int,
        store: Store,
        queue: Queue | None,
        clock: VirtualClock,
        registry: Registry,
        timing: Timing,
        *,
        concurrency: int,
    ) -> None:
        self._rng = random.Random(f"node {number}")
        self.number = number
        self._store = store
        self._queue = queue
        self._stack = AsyncExitStack()
        self._clock = clock
        self._registry = registry
        self._timing = timing
        self._concurrency = concurrency
        self._heartbeat: Heartbeat | None = None
        self._executor = Executor(
            registry, store.blobs, cast(Any, clock), threads=concurrency, allow_shell=False, processes=1
        )
        self.node: NodeService | None = None

    async def start(self) -> None:
        """Join the cluster, and do all duties from then on."""
        clock, timing = cast(Any, self._clock), self._timing
        store = await self._stack.enter_async_context(in_front(self._store, self._queue, clock, timing))
        ids = Ids(random=self._rng.randbytes, wall=lambda: clock.now().timestamp())
        lease = Lease(clock, timing)
        worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=self._executor,
            metrics=METRICS,
            timing=timing,
            node_id=self._node_id,
            tasks=self._registry.names,
            queues=(),
            concurrency=self._concurrency,
            random_factor=self._rng.random,
            queue=self._queue,
        )
        watcher = None
        if self._queue is not None:
            watcher = Watcher(store, self._queue, clock, METRICS.tickets, timing=timing, shards=self._shards)
        now = clock.now()
        identity = Node(
            id=NodeId(ids()),
            name=f"node-{self.number}",
            roles=("planner", "worker"),
            version="simulated",
            concurrency=self._concurrency,
            started_at=now,
            beat_at=now,
            tasks=self._registry.schemas(),
        )
        self._heartbeat = Heartbeat(
            store, clock, lease, identity, timing, METRICS, new_id=ids, running=lambda: worker.running
        )
        self.node = NodeService(
            store=store,
            clock=clock,
            lease=lease,
            timing=timing,
            heartbeat_thread=cast(HeartbeatThread, HeartbeatTask(self._heartbeat, clock, timing)),
            janitor=Janitor(store, clock, lease, timing),
            retention=Retention(store, clock, keep=timedelta(days=30)),
            planner=Planner(store, clock, METRICS, horizon=timing.horizon, shards=self._shards, new_id=ids),
            worker=worker,
            queue=self._queue,
            watcher=watcher,
        )
        await self.node.start()

    async def failed(self) -> None:
        """Wait until a duty fails, and raise its error."""
        assert self.node is not None
        await self.node.failed()

    async def stop(self) -> None:
        assert self.node is not None
        await self.node.stop()
        await self._executor.close()
        await self._stack.aclose()

    def _node_id(self) -> NodeId:
        assert self._heartbeat is not None
        return self._heartbeat.node.id

    def _shards(self) -> list[int]:
        assert self._heartbeat is not None
        heard_since = self._clock.now() - self._timing.missed_after
        return shards_of(self._node_id(), self._heartbeat.nodes, heard_since=heard_since)
