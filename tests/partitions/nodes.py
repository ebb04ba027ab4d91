"""The real duties of a node in virtual time, each node with a store of its own."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
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
from horae.engine.execution.executor import Executor
from horae.engine.node import NodeService
from horae.engine.worker.worker import Worker
from horae.metrics import Metrics
from horae.ports.store import Store
from horae.stores.dynamodb import times
from horae.tasks.registry import Registry
from tests.simulation.host import HeartbeatTask
from tests.simulation.virtual import MICROS, SimulatedLoop

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
EPOCH = START.timestamp()
_METRICS = Metrics()  # one for all nodes: creating them takes longer than everything else


class VirtualClock:
    """The time of the loop, which every node reads without an error."""

    offset = timedelta()

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._micros = -1
        self._now = START

    def now(self) -> datetime:
        if (micros := self._loop.micros) != self._micros:
            self._micros, self._now = micros, START + timedelta(microseconds=micros)
        return self._now

    def elapsed(self) -> float:
        return self._loop.time()

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Do nothing: the store has the same clock."""

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        if event.is_set():
            return True
        timeout = None if until is None else max((until - self.now()).total_seconds(), 0)
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        return True


def seconds(loop: SimulatedLoop) -> float:
    """Seconds since 1970, by the clock of everybody."""
    return EPOCH + loop.micros / MICROS


class SimulatedNode:
    """One process with the roles of planner and worker."""

    def __init__(
        self, number: int, store: Store, clock: VirtualClock, registry: Registry, timing: Timing, *, concurrency: int
    ) -> None:
        self._rng = random.Random(f"node {number}")
        self.number = number
        self._store = store
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
        store, clock, timing = self._store, cast(Any, self._clock), self._timing
        ids = Ids(random=self._rng.randbytes, wall=lambda: clock.now().timestamp())
        lease = Lease(clock, timing)
        worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=self._executor,
            metrics=_METRICS,
            timing=timing,
            node_id=self._node_id,
            tasks=self._registry.names,
            queues=(),
            concurrency=self._concurrency,
            random_factor=self._rng.random,
        )
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
            store, clock, lease, identity, timing, _METRICS, new_id=ids, running=lambda: worker.running
        )
        self.node = NodeService(
            store=store,
            clock=clock,
            lease=lease,
            timing=timing,
            heartbeat_thread=cast(HeartbeatThread, HeartbeatTask(self._heartbeat, clock, timing)),
            janitor=Janitor(store, clock, lease, timing),
            retention=Retention(store, clock, keep=timedelta(days=30)),
            planner=Planner(store, clock, _METRICS, horizon=timing.horizon, shards=self._shards, new_id=ids),
            worker=worker,
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

    def _node_id(self) -> NodeId:
        assert self._heartbeat is not None
        return self._heartbeat.node.id

    def _shards(self) -> list[int]:
        assert self._heartbeat is not None
        heard_since = self._clock.now() - self._timing.missed_after
        return shards_of(self._node_id(), self._heartbeat.nodes, heard_since=heard_since)


def run_in_virtual_time(main: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    """Run to the end on a loop whose time jumps from timer to timer, and end what is left of it."""
    loop = SimulatedLoop()

    async def ended() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    clocks = times.steady, times.wall
    try:
        times.steady, times.wall = loop.time, VirtualClock(loop).now
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main(loop))
        loop.run_until_complete(ended())
    finally:
        times.steady, times.wall = clocks
        asyncio.set_event_loop(None)
        loop.close()
