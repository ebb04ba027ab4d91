"""One node under virtual time: the real planner, worker, settler and janitor, each looked at exactly when it is due.

A real node looks around every few seconds, for what a lost signal or a dead neighbour may have left. Here no signal is
lost and nobody dies unless the test says so; without those looks a year passes in a second.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from horae.core.ids import Ids
from horae.core.model import SHARDS, Node, NodeId
from horae.core.results import Settled
from horae.core.signals import Kind, Signal
from horae.engine.cluster.lease import Heartbeat, Lease, Timing
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.execution.executor import Executor
from horae.engine.worker.settler import Settler
from horae.engine.worker.timer import LoopTimer
from horae.engine.worker.worker import Worker
from horae.loop import Loop
from horae.metrics import Metrics
from horae.ports.store import Store
from horae.tasks.registry import Registry
from horae.testing.handlers import Handlers, TurnPool
from horae.testing.virtual_time import VirtualClock, VirtualLoop

CONCURRENCY = 100
NEVER = timedelta(days=36525)  # when a duty looks around although nobody called it


class GivenLease(Lease):
    """A lease that is always good: heartbeats are not worth the time that they take."""

    @property
    def age(self) -> timedelta:
        return timedelta()


class PlainSettler(Settler):
    """Writes at the end of every step what a real one leaves for a moment later, so that tests see it."""

    async def show(self) -> bool:
        """Write everything now; False when there was nothing."""
        if not self._starts and not self._results:
            return False
        await self.tick()
        await self._write_starts(self._clock.now())
        return True


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
        luck: Callable[[], float],
        ended: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = loop
        self._timing = timing = Timing()
        self._ended = ended
        self._sweep_until = clock.now()
        lease = GivenLease(clock, timing)
        node = Node(
            id=NodeId(new_id()),
            name=name,
            roles=("planner", "worker"),
            version="testing",
            concurrency=CONCURRENCY,
            started_at=clock.now(),
            beat_at=clock.now(),
            tasks=registry.schemas(),
        )
        self._heart = Heartbeat(
            store, clock, lease, node, timing, new_id=new_id, running=lambda: self._worker.running, beaten=_nothing
        )
        self._executor = Executor(
            registry, store.blobs, clock, threads=CONCURRENCY, pool=TurnPool(loop), allow_shell=True, processes=1
        )
        self._settler = PlainSettler(store, clock)
        self._worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=Handlers(self._executor, loop),
            settler=self._settler,
            metrics=Metrics(),
            timing=timing,
            node_id=lambda: self._heart.node.id,
            tasks=registry.names,
            queues=(),
            concurrency=CONCURRENCY,
            luck=luck,
            spacing=timedelta(),
        )
        planner = Planner(store, clock, Metrics(), horizon=timing.horizon, shards=lambda: range(SHARDS), new_id=new_id)
        self._janitor = Janitor(store, clock, lease, timing)
        self._planning = Loop("planner", planner.tick, clock, idle=NEVER)
        self._claiming = Loop("claims", self._worker.tick, clock, idle=NEVER)
        self._stopping = Loop("stops", self._obey_stops, clock, idle=NEVER)
        self._settling = Loop("results", self._settler.tick, clock, idle=NEVER)
        self._sweeping = Loop("janitor", self._sweep, clock, idle=NEVER)
        self._loops = [self._planning, self._claiming, self._stopping, self._settling, self._sweeping]
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = _nothing
        self._worker.alarm = LoopTimer(clock, self._worker.release_due)
        self._worker.wake = self._claiming.wake
        self._settler.wake = self._wake_settler
        self._tell_worker, self._settler.settled = self._settler.settled, self._settled

    async def start(self) -> None:
        """Join, and begin every duty."""
        await self._heart.join()
        self._unsubscribe = self._store.subscribe(self._heard)
        self._tasks = [self._events.create_task(loop.run(), name=loop.name) for loop in self._loops]
        for task in self._tasks:
            task.add_done_callback(self._duty_ended)

    async def show(self) -> bool:
        """Bring to the store whatever is known here; False when that was nothing."""
        self._executor.flush_logs()
        return await self._settler.show()

    async def stop(self) -> None:
        """End at once, as a process that is killed: nothing more is written."""
        self._unsubscribe()
        for task in self._tasks:
            task.remove_done_callback(self._duty_ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._executor.close()

    def look_for_dead(self) -> None:
        """Another node has just died: sweep until everybody has noticed."""
        self._sweep_until = self._clock.now() + self._timing.dead_after + 2 * self._timing.heartbeat
        self._sweeping.wake()

    def _settled(self, results: Sequence[Settled], answers: Sequence[bool]) -> None:
        self._tell_worker(results, answers)
        self._ended()

    def _wake_settler(self, at: datetime | None) -> None:
        self._settling.wake(None if self._settler.unsettled else at)

    def _heard(self, signal: Signal) -> None:
        if signal.kind in (Kind.DUE, Kind.ANY):
            self._worker.heard(signal.at)
        if signal.kind in (Kind.PLAN, Kind.ANY):
            self._planning.wake(signal.at)
        if signal.kind in (Kind.STOP, Kind.ANY):
            self._stopping.wake()

    def _duty_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self._events.fail(error or AssertionError(f"the duty {task.get_name()} ended by itself"))

    async def _obey_stops(self) -> datetime | None:
        await self._worker.obey_stops()
        return None

    async def _sweep(self) -> datetime | None:
        if self._clock.now() > self._sweep_until:
            return None
        await self._heart.tick()
        return await self._janitor.tick()


def _nothing() -> None:
    """There is nothing to do."""
