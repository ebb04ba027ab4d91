"""One node under virtual time: the real planner, worker and janitor, each ticking exactly when it is due.

A real node polls every few seconds for what a lost signal or a dead neighbour may have left. Here no signal is lost
and no node dies unless the test asks for it; without that polling a year passes in a second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from horae.core.ids import Ids
from horae.core.model import SHARDS, Node, NodeId
from horae.core.signals import Kind, Signal
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.execution.executor import Executor
from horae.engine.worker.timer import LoopTimer
from horae.engine.worker.worker import Worker
from horae.loop import Loop, Tick, Wakeup
from horae.metrics import Metrics
from horae.ports.store import Store
from horae.tasks.registry import Registry
from horae.testing.handlers import CountingExecutor, TurnPool
from horae.testing.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

CONCURRENCY = 100
NEVER = timedelta(days=36525)  # idle time of a loop that ticks only when woken


class PermanentLease(Lease):
    """A lease that is always safe, so that no heartbeats are needed."""

    @property
    def age(self) -> timedelta:
        return timedelta()


class EagerWakeup(Wakeup):
    """Has results written at once instead of a few milliseconds later."""

    def wake(self, at: datetime | None = None) -> None:
        super().wake(None)


class VirtualNode:
    """A node with the roles planner and worker."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        loop: VirtualLoop,
        registry: Registry,
        *,
        name: str,
        new_id: Ids,
        random_factor: Callable[[], float],
        on_settled: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._loop = loop
        self._timing = timing = Timing()
        self._on_settled = on_settled
        self._sweep_until = clock.now()
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        lease = PermanentLease(clock, timing)
        node = _node(NodeId(new_id()), name, registry, now=clock.now())
        self._heartbeat = Heartbeat(
            store, clock, lease, node, timing, Metrics(), new_id=new_id, running=lambda: self._worker.busy
        )
        self._executor = _executor(registry, store, clock, loop)
        self._worker = worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=CountingExecutor(self._executor, loop),
            metrics=Metrics(),
            timing=timing,
            node_id=lambda: self._heartbeat.node.id,
            tasks=registry.names,
            queues=(),
            concurrency=CONCURRENCY,
            random_factor=random_factor,
            spacing=timedelta(),
            make_timer=lambda call: LoopTimer(clock, call),
            settle_wakeup=EagerWakeup(clock),
        )
        planner = Planner(store, clock, Metrics(), horizon=timing.horizon, shards=lambda: range(SHARDS), new_id=new_id)
        self._janitor = Janitor(store, clock, lease, timing)
        self._loops: list[Loop] = []
        self._planner_loop = self._add("planner", planner.tick)
        self._add("claims", worker.claim, worker.claim_wakeup)
        self._stops_loop = self._add("stops", worker.apply_stops)
        self._add("results", lambda: self._notify_after(worker.settler.tick()), worker.settle_wakeup)
        self._janitor_loop = self._add("janitor", self._sweep)

    async def start(self) -> None:
        """Join the cluster and start every duty."""
        await self._heartbeat.join()
        self._unsubscribe = self._store.subscribe(self._on_signal)
        self._tasks = [self._loop.create_task(loop.run(), name=loop.name) for loop in self._loops]
        for task in self._tasks:
            task.add_done_callback(self._duty_ended)

    async def flush(self) -> bool:
        """Write logs, starts and results to the store; returns whether there were any."""
        self._executor.flush_logs()
        return await self._notify_after(self._worker.settler.flush())

    async def stop(self) -> None:
        """End at once, like a process that is killed: nothing more is written."""
        self._unsubscribe()
        for task in self._tasks:
            task.remove_done_callback(self._duty_ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._executor.close()

    def sweep_dead_nodes(self) -> None:
        """Sweep until a node that has just died is declared dead."""
        self._sweep_until = self._clock.now() + self._timing.dead_after + 2 * self._timing.heartbeat
        self._janitor_loop.wake()

    def _add(self, name: str, tick: Tick, wakeup: Wakeup | None = None) -> Loop:
        loop = Loop(name, tick, self._clock, idle=NEVER, wakeup=wakeup)
        self._loops.append(loop)
        return loop

    async def _notify_after(self, writing: Awaitable[T]) -> T:
        """Write what the settler has, and report it if there were results."""
        has_results = self._worker.settler.unsettled
        written = await writing
        if has_results:
            self._on_settled()
        return written

    def _on_signal(self, signal: Signal) -> None:
        if signal.kind in (Kind.DUE, Kind.ANY):
            self._worker.signal(signal.at)
        if signal.kind in (Kind.PLAN, Kind.ANY):
            self._planner_loop.wake(signal.at)
        if signal.kind in (Kind.STOP, Kind.ANY):
            self._stops_loop.wake()

    def _duty_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self._loop.fail(error or AssertionError(f"the duty {task.get_name()} ended by itself"))

    async def _sweep(self) -> datetime | None:
        if self._clock.now() > self._sweep_until:
            return None
        await self._heartbeat.tick()
        return await self._janitor.tick()


def _node(node_id: NodeId, name: str, registry: Registry, *, now: datetime) -> Node:
    return Node(
        id=node_id,
        name=name,
        roles=("planner", "worker"),
        version="testing",
        concurrency=CONCURRENCY,
        started_at=now,
        beat_at=now,
        tasks=registry.schemas(),
    )


def _executor(registry: Registry, store: Store, clock: VirtualClock, loop: VirtualLoop) -> Executor:
    pool = TurnPool(loop)
    return Executor(registry, store.blobs, clock, threads=CONCURRENCY, pool=pool, allow_shell=True, processes=1)
