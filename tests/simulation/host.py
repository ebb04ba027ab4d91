"""One simulated host: the real node and use cases on a machine that may be killed, with a wire that may fail."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import cast

from horae.adapters import sync_clock
from horae.api.dispatch.context import Services
from horae.blobs.folder import FolderFiles
from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.heartbeat_thread import HeartbeatThread
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.shards import shards_of
from horae.engine.duties.archiving import Archiver
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.duties.watcher import Watcher
from horae.engine.execution.executor import Executor
from horae.engine.node import NodeService
from horae.engine.worker.worker import Worker
from horae.loop import Loop
from horae.metrics import Metrics
from horae.offering import OfferingStore, Offers
from horae.ports.clock import StoreClock
from horae.ports.store import Store
from tests.memory_queue import MemoryQueue
from tests.simulation.handler import REGISTRY, SCHEMAS, Workplace
from tests.simulation.recording import History
from tests.simulation.virtual import SimulatedLoop
from tests.simulation.wire import Wire

KEEP = timedelta(days=30)
NOWHERE = Path("/nonexistent/archive")
_METRICS = Metrics()  # one for all hosts: creating them takes longer than everything else


class Host(Workplace):
    """A process; after a restart it is another host."""

    def __init__(
        self,
        name: str,
        number: int,
        wire: Wire,
        loop: SimulatedLoop,
        timing: Timing,
        history: History,
        *,
        rng: Random,
        drift: float,
        queue: MemoryQueue | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.number = number  # the process id
        self.dead = False
        self.leaving = False
        self.services: Services | None = None  # once it is up
        self.unplug = wire.unplug
        self._store = cast(Store, wire)
        self._queue = queue  # in front of the store; None: there is none
        self._loop = loop
        self._timing = timing
        self.at = history.now
        self.note = history.add
        self._rng = rng
        booted = rng.uniform(0, 1e6)  # its steady clock at the start of the life, in seconds
        self._clock = StoreClock(lambda: booted + loop.time() * (1 + drift))
        self._concurrency = rng.choice((2, 5, 50))
        self._heartbeat: Heartbeat | None = None
        self._node: NodeService | None = None
        self._executor: Executor | None = None

    @property
    def node_id(self) -> NodeId:
        assert self._heartbeat is not None
        return self._heartbeat.node.id

    async def start(self) -> None:
        """Start the node as `runtime.wiring` does."""
        store, clock, timing, rng = self._store, self._clock, self._timing, self._rng
        await sync_clock(clock, store)
        queue, tickets = self._queue, _METRICS.tickets
        if queue is not None:
            offers = Offers(queue, store, clock, tickets, horizon=timing.horizon)
            store = cast(Store, OfferingStore(store, offers))
        ids = Ids(random=rng.randbytes, wall=lambda: clock.now().timestamp())
        lease = Lease(clock, timing)
        self._executor = Executor(
            REGISTRY, store.blobs, clock, threads=self._concurrency, allow_shell=False, processes=1
        )
        worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=self._executor,
            metrics=_METRICS,
            timing=timing,
            node_id=lambda: self.node_id,
            tasks=REGISTRY.names,
            queues=(),
            concurrency=self._concurrency,
            random_factor=rng.random,
            queue=queue,
        )
        self._heartbeat = Heartbeat(
            store,
            clock,
            lease,
            self._identity(ids),
            timing,
            _METRICS,
            new_id=ids,
            running=lambda: worker.running,
        )
        # A life is shorter than history is kept: the archive is asked for, and never written.
        archiver = Archiver(store, store.blobs, FolderFiles(NOWHERE), clock, _METRICS, keep=KEEP, shards=self._shards)
        self._node = NodeService(
            store=store,
            clock=clock,
            lease=lease,
            timing=timing,
            heartbeat_thread=cast(HeartbeatThread, HeartbeatTask(self._heartbeat, clock, timing)),
            janitor=Janitor(store, clock, lease, timing),
            retention=Retention(store, clock, keep=KEEP, archiver=archiver),
            planner=Planner(store, clock, _METRICS, horizon=timing.horizon, shards=self._shards, new_id=ids),
            worker=worker,
            queue=queue,
            watcher=None
            if queue is None
            else Watcher(store, queue, clock, tickets, timing=timing, shards=self._shards),
        )
        await self._node.start()
        self.services = Services.over(
            store,
            store.blobs,
            clock,
            _METRICS,
            new_id=ids,
            horizon=timing.horizon,
            dead_after=timing.dead_after,
            task_defaults=REGISTRY.get,
            check_params=REGISTRY.check,
            ready=lambda: True,
        )

    async def failed(self) -> None:
        """Wait until a duty fails, and raise its error."""
        assert self._node is not None
        await self._node.failed()

    async def stop(self) -> None:
        """Stop as on SIGTERM."""
        assert self._node is not None
        assert self._executor is not None
        await self._node.stop()
        await self._executor.close()

    def _identity(self, ids: Callable[[], str]) -> Node:
        now = self._clock.now()
        return Node(
            id=NodeId(ids()),
            name=self.name,
            roles=("api", "planner", "worker"),
            version="simulated",
            concurrency=self._concurrency,
            started_at=now,
            beat_at=now,
            tasks=SCHEMAS,
        )

    def _shards(self) -> list[int]:
        assert self._heartbeat is not None
        heard_since = self._clock.now() - self._timing.missed_after
        return shards_of(self.node_id, self._heartbeat.nodes, heard_since=heard_since)


class HeartbeatTask:
    """The heartbeat as an asyncio task: a thread would make lives irreproducible."""

    def __init__(self, heartbeat: Heartbeat, clock: StoreClock, timing: Timing) -> None:
        self._heartbeat = heartbeat
        self._loop = Loop("heartbeat", self._beat, clock, idle=timing.heartbeat)
        self._after_beat: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, after_beat: Callable[[], None]) -> Heartbeat:
        self._after_beat = after_beat
        await self._heartbeat.join()
        self._task = asyncio.create_task(self._loop.run(), name="heartbeat")
        return self._heartbeat

    async def _beat(self) -> datetime | None:
        again = await self._heartbeat.tick()
        if self._after_beat is not None:
            asyncio.get_running_loop().call_soon(self._after_beat)
        return again

    async def failed(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)

    def wake(self) -> None:
        self._loop.wake()

    async def stop(self) -> None:
        self._loop.stop()
        assert self._task is not None
        await self._task
