"""One node under virtual time: the real planner, worker and janitor, each ticking exactly when it is due.

A real node polls every few seconds for what a lost signal or a dead neighbour may have left. Here no signal is lost
and no node dies unless the test asks for it. And nobody else changes anything while a call advances time: so runs are
planned and claimed up to an hour ahead, though not beyond that call, and results are kept back until somebody needs
them. That is a tenth of the work for each run, and nobody can tell: `tests/testing/test_looking_ahead.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from horae.core.decisions.firing import LONGEST_HORIZON, MAX_UNSTARTED, REFILL
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
LATE_REFILL = 0.1  # of a long horizon: there is no other planner that would need time to take over
NEVER = timedelta(days=36525)  # idle time of a loop that ticks only when woken


class PermanentLease(Lease):
    """A lease that is always safe, so that no heartbeats are needed."""

    @property
    def age(self) -> timedelta:
        return timedelta()


class ResultsWakeup(Wakeup):
    """Has results written at once if anybody waits for them, instead of a few milliseconds later."""

    def __init__(self, clock: VirtualClock, are_needed: Callable[[], bool]) -> None:
        super().__init__(clock)
        self._are_needed = are_needed

    def wake(self, at: datetime | None = None) -> None:
        if at is None or self._are_needed():
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
        looks_ahead: Callable[[], bool],
        on_settled: Callable[[], None],
    ) -> None:
        """`looks_ahead` says whether runs may be claimed early, and results be kept back."""
        self._store = store
        self._clock = clock
        self._loop = loop
        self._timing = timing = Timing()
        self._looks_ahead = looks_ahead
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
        self._worker = worker = self._new_worker(lease, registry.names, random_factor)
        self._planner = Planner(
            store, clock, Metrics(), horizon=timing.horizon, shards=lambda: range(SHARDS), new_id=new_id
        )
        self._janitor = Janitor(store, clock, lease, timing)
        self._loops: list[Loop] = []
        self._planner_loop = self._add("planner", self._plan)
        self._add("claims", self._claim, worker.claim_wakeup)
        self._stops_loop = self._add("stops", worker.apply_stops)
        self._add("results", lambda: self._notify_after(worker.settler.tick()), worker.settle_wakeup)
        self._janitor_loop = self._add("janitor", self._sweep)

    def _new_worker(self, lease: Lease, tasks: list[str], random_factor: Callable[[], float]) -> Worker:
        results = ResultsWakeup(self._clock, lambda: self._worker.needs_results or not self._looks_ahead())
        executor = CountingExecutor(self._executor, self._loop, begins=self._attempt_begins, unsuccessful=results.wake)
        return Worker(
            store=self._store,
            clock=self._clock,
            lease=lease,
            executor=executor,
            metrics=Metrics(),
            timing=self._timing,
            node_id=lambda: self._heartbeat.node.id,
            tasks=tasks,
            queues=(),
            concurrency=CONCURRENCY,
            random_factor=random_factor,
            spacing=timedelta(),
            per_gate=2 * MAX_UNSTARTED,  # never too few for one job
            make_timer=lambda call: LoopTimer(self._clock, call),
            settle_wakeup=results,
        )

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
        return await self.write_kept()

    async def write_kept(self) -> bool:
        """Write starts and results that were kept back; returns whether there were any."""
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

    async def _plan(self) -> datetime | None:
        usual = self._timing.horizon
        self._planner.horizon = horizon = self._ahead(usual)
        self._planner.refill = max(LATE_REFILL, REFILL * (usual / horizon))
        return await self._planner.tick()

    async def _claim(self) -> datetime | None:
        await self.write_kept()
        self._worker.look_ahead(self._ahead(self._timing.lead))
        return await self._worker.claim()

    def _attempt_begins(self) -> None:
        if self._worker.busy == CONCURRENCY - 1:
            self._loop.call_soon(self.give_back_early_claims)  # what waits for a slot is chosen in the store

    def give_back_early_claims(self) -> None:
        """Hold only what a real worker would hold."""
        self._worker.withdrawer.give_back_later_than(self._clock.now() + self._timing.lead)
        if self._worker.settler.unsettled:
            self._worker.settle_wakeup.wake()

    def _ahead(self, usual: timedelta) -> timedelta:
        """How far ahead to plan or claim: as usual, or as far as time is being advanced."""
        return max(usual, min(self._loop.ahead, LONGEST_HORIZON)) if self._looks_ahead() else usual

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
