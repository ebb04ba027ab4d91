"""Whole nodes in one process on a real store, in virtual time: nothing sleeps, and every run repeats exactly."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from horae.core.decisions.results import Failure
from horae.core.ids import Ids
from horae.core.model import Node, NodeId, Run, RunId
from horae.core.signals import Kind, Signal
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.shards import shards_of
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.watcher import Watcher
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from horae.engine.worker.worker import Worker
from horae.lookup import find_run
from horae.loop import Wakeup
from horae.metrics import Metrics
from horae.offering import OfferingStore, Offers
from horae.ports.store import Store
from tests import acts
from tests.clocks import ManualClock
from tests.memory_queue import MemoryQueue

TAKE_EVERY = timedelta(milliseconds=100)  # at least, from a queue that has something which nobody can use
START = datetime(2026, 11, 15, 12, tzinfo=UTC)

TASKS = ("echo", "slow", "long", "flaky", "broken", "step", "poison")  # tests give them scripts

Script = Callable[[Run], tuple[float, AttemptResult]]  # how long the handler takes, in seconds, and what comes of it


def instantly(run: Run) -> tuple[float, AttemptResult]:
    return 0.0, Success(result="null")


def taking(seconds: float) -> Script:
    return lambda run: (seconds, Success(result="null"))


def failing(times: int, error: Failure, seconds: float = 0.0) -> Script:
    return lambda run: (seconds, error if run.attempt <= times else Success(result="null"))


@dataclass
class Started:
    """One start of a handler, recorded by the handler itself."""

    run: Run
    at: datetime
    node: NodeId
    ended_at: datetime | None = None


@dataclass
class ScriptedExecution:
    run: Run
    ends_at: datetime
    result: AttemptResult
    done: Callable[[Run, AttemptResult], None]
    record: Started
    cancelled: bool = False
    over: bool = False

    def stop(self) -> None:
        self.result, self.ends_at = Stopped(), self.record.at

    def kill(self) -> None:
        self.over = True


@dataclass
class ScriptedExecutor:
    """Replaces users' handlers: each takes the virtual time that its script returns."""

    clock: ManualClock
    scripts: dict[str, Script]
    starts: list[Started]
    node_id: Callable[[], NodeId]
    under_way: list[ScriptedExecution] = field(default_factory=list)
    abandoned: int = 0
    lent: int = 0

    def when_lent(self, call: Callable[[], None]) -> None:
        """Do nothing: no script waits for other runs."""

    def begin(
        self, run: Run, done: Callable[[Run, AttemptResult], None], progressed: Callable[[Run, float], None]
    ) -> RunningAttempt:
        seconds, result = self.scripts[run.spec.task](run)
        record = Started(run, self.clock.now(), self.node_id())
        self.starts.append(record)
        ends_at = self.clock.now() + timedelta(seconds=seconds)
        execution = ScriptedExecution(run, ends_at, result, done, record)
        self.under_way.append(execution)
        return execution  # type: ignore[return-value]

    def finish_due(self) -> bool:
        """Report the attempts that are over; returns True when there were any."""
        due = [entry for entry in self.under_way if entry.over or entry.ends_at <= self.clock.now()]
        for entry in due:
            self.under_way.remove(entry)
            if not entry.over:
                entry.record.ended_at = self.clock.now()
                entry.done(entry.run, entry.result)
        return bool(due)

    def next_at(self) -> datetime | None:
        return min((entry.ends_at for entry in self.under_way), default=None)


class Duty:
    """A background duty and the time of its next tick, in place of a loop."""

    def __init__(
        self,
        clock: ManualClock,
        tick: Callable[[], Awaitable[datetime | None]],
        idle: timedelta,
        wakeup: Wakeup | None = None,
    ) -> None:
        self._clock = clock
        self._tick = tick
        self._idle = idle
        self._wakeup = wakeup or Wakeup(clock)
        self._again_at = clock.now()
        self.wake = self._wakeup.wake

    @property
    def next_at(self) -> datetime:
        return self._again_at if self._wakeup.at is None else min(self._again_at, self._wakeup.at)

    async def run_if_due(self) -> bool:
        now = self._clock.now()
        if self.next_at > now:
            return False
        self._wakeup.clear()
        self._again_at = now + self._idle
        again = await self._tick()
        if again is not None:
            self._again_at = min(self._again_at, max(again, now))
        return True


async def _nothing() -> None:
    """A tick without any effect, for a node that is cut off."""


class _ManualTimer:
    at: datetime | None = None

    def set(self, at: datetime | None) -> None:
        self.at = at


class SimNode:
    """One node: the real planner, worker, janitor and heartbeat, driven by hand."""

    def __init__(self, system: "System", name: str, *, concurrency: int, queues: tuple[str, ...]) -> None:
        self.system = system
        self.clock, self.store, self.timing = system.clock, system.store, system.timing
        self.alive = True
        self.timer = _ManualTimer()
        self.lease = Lease(self.clock, self.timing)
        node = Node(
            id=NodeId(system.new_id()),
            name=name,
            roles=("planner", "worker"),
            version="test",
            queues=queues,
            concurrency=concurrency,
            started_at=START,
            beat_at=START,
            tasks=dict.fromkeys(system.scripts, "{}"),
        )
        self.heartbeat = Heartbeat(
            self.store,
            self.clock,
            self.lease,
            node,
            self.timing,
            Metrics(),
            new_id=system.new_id,
            running=lambda: self.worker.running,
        )
        self.executor = ScriptedExecutor(self.clock, system.scripts, system.starts, lambda: self.heartbeat.node.id)
        self.worker = Worker(
            store=self.store,
            clock=self.clock,
            lease=self.lease,
            executor=self.executor,
            metrics=Metrics(),
            timing=self.timing,
            node_id=lambda: self.heartbeat.node.id,
            tasks=list(system.scripts),
            queues=queues,
            concurrency=concurrency,
            random_factor=system.random.random,
            make_timer=lambda _: self.timer,
            queue=system.queue,
        )
        self.settler = self.worker.settler
        planner = Planner(
            self.store,
            self.clock,
            Metrics(),
            horizon=self.timing.horizon,
            shards=self._shards,
            new_id=system.new_id,
        )
        janitor = Janitor(self.store, self.clock, self.lease, self.timing)
        worker = self.worker
        self.beating = Duty(self.clock, self._beat, self.timing.heartbeat)
        self.claiming = Duty(self.clock, worker.claim, timedelta(seconds=5), worker.claim_wakeup)
        self.planning = Duty(self.clock, planner.tick, timedelta(seconds=5))
        self.settling = Duty(self.clock, worker.settler.tick, timedelta(seconds=5), worker.settle_wakeup)
        self.stopping = Duty(self.clock, worker.apply_stops, self.timing.heartbeat)
        self.sweeping = Duty(self.clock, janitor.tick, self.timing.heartbeat)
        self.duties = [
            self.beating,
            self.sweeping,
            self.planning,
            self.claiming,
            self.stopping,
            self.settling,
        ]
        if system.queue is not None:
            self._add_queue(system.queue)
        self.unsubscribe = self.store.subscribe(self._on_signal)

    def _add_queue(self, queue: MemoryQueue) -> None:
        """Take tickets, and fill the queue, as a node does."""
        self.watcher = Watcher(
            self.store, queue, self.clock, Metrics().tickets, timing=self.timing, shards=self._shards
        )
        self.watching = Duty(self.clock, self.watcher.tick, timedelta(seconds=5))
        self.taking = Duty(self.clock, self._take, self.timing.lead, self.worker.tickets_wakeup)
        queue.woken.append(self.taking.wake)
        self.duties += [self.watching, self.taking]

    async def _take(self) -> datetime | None:
        """Take tickets, and wait for the next one as a queue does."""
        queue, tickets = self.system.queue, self.worker.tickets
        assert queue is not None
        assert tickets is not None
        before = tickets.untried
        await self.worker.take_tickets()
        if tickets.untried > before:
            return self.clock.now()
        next_at = queue.next_at()
        return None if next_at is None else max(next_at - self.timing.lead, self.clock.now() + TAKE_EVERY)

    def kill(self) -> None:
        """kill -9: nothing more is done or written, and no other node is informed."""
        self.alive = False
        self.unsubscribe()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.alive = False

    def thaw(self) -> None:
        """SIGCONT."""
        self.alive = True

    def cut_off(self) -> None:
        """Cut its link to the store: attempts go on, but nothing is read or written."""
        self._duties, self.duties = self.duties, [Duty(self.clock, _nothing, timedelta(seconds=1))]

    def reconnect(self) -> None:
        """Restore the link to the store."""
        self.duties = self._duties

    async def drain(self) -> None:
        """SIGTERM: give back what has not started, wait for the rest, leave."""
        self.worker.withdrawer.begin_drain()
        while self.worker.running or self.settler.unsettled:
            await self.settler.tick()
            if not self.worker.running:
                break
            await self.system.advance(seconds=0.5)
        self.kill()
        await acts.unregister(self.store, self.heartbeat.node.id)

    async def step(self) -> bool:
        """Do what is due now; returns True when there was something."""
        if not self.alive:
            return False
        busy = self.executor.finish_due()
        if self.timer.at is not None and self.timer.at <= self.clock.now():
            self.timer.at = None
            busy = self.worker.release_due() > 0 or busy
        await self.worker.withdrawer.check_lease()
        for duty in self.duties:
            busy = await duty.run_if_due() or busy
        return busy

    def next_at(self) -> datetime | None:
        if not self.alive:
            return None
        times = [duty.next_at for duty in self.duties]
        return min([*times, *(at for at in (self.timer.at, self.executor.next_at()) if at is not None)])

    def _on_signal(self, signal: Signal) -> None:
        if signal.kind in (Kind.DUE, Kind.ANY):
            self.worker.signal(signal.at)
        if signal.kind in (Kind.DUE, Kind.ANY) and self.system.queue is not None:
            self.watching.wake(self.watcher.signal(signal.at))
        if signal.kind in (Kind.PLAN, Kind.ANY):
            self.planning.wake(signal.at)
        if signal.kind in (Kind.STOP, Kind.ANY):
            self.stopping.wake()

    def _shards(self) -> list[int]:
        heard_since = self.clock.now() - self.timing.missed_after
        return shards_of(self.heartbeat.node.id, self.heartbeat.nodes, heard_since=heard_since)

    async def _beat(self) -> datetime | None:
        again = await self.heartbeat.tick()
        if self.lease.lost:
            self.worker.withdrawer.abandon_all()
            self.heartbeat.rejoin = True
            self.beating.wake()
        elif self.worker.suspended:
            self.claiming.wake()
        return again


class System:
    """A cluster in virtual time."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        *,
        timing: Timing | None = None,
        seed: int = 0,
        queue: MemoryQueue | None = None,
    ) -> None:
        self.timing = timing or Timing()
        self.queue = queue  # in front of the store; None: there is none
        if queue is not None:
            offers = Offers(queue, store, clock, Metrics().tickets, horizon=self.timing.horizon)
            store = cast(Store, OfferingStore(store, offers, patience=timedelta(seconds=1)))
        self.store = store
        self.clock = clock
        self.random = random.Random(seed)
        self.new_id = Ids(random=self.random.randbytes, wall=lambda: clock.now().timestamp())
        self.scripts: dict[str, Script] = dict.fromkeys(TASKS, instantly)
        self.starts: list[Started] = []
        self.nodes: list[SimNode] = []

    async def add_node(self, *, concurrency: int = 100, queues: tuple[str, ...] = ()) -> SimNode:
        node = SimNode(self, f"node-{len(self.nodes)}", concurrency=concurrency, queues=queues)
        await node.heartbeat.join()
        self.nodes.append(node)
        return node

    async def advance(self, **units: float) -> None:
        """Let time pass, stopping at every instant at which something happens."""
        await self.advance_to(self.clock.now() + timedelta(**units))

    async def advance_to(self, target: datetime) -> None:
        await self.settle_all()
        while self.clock.now() < target:
            times = [at for node in self.nodes if (at := node.next_at()) is not None]
            self.clock.move_to(max(min([*times, target]), self.clock.now()))
            await self.settle_all()

    async def settle_all(self) -> None:
        """Do everything that is due at this instant."""
        for _ in range(10_000):
            if not any([await node.step() for node in self.nodes]):
                return
        raise AssertionError(f"the system does not come to rest at {self.clock.now()}")

    async def run(self, run_id: str) -> Run:
        run = await find_run(self.store, RunId(run_id), owner=None)
        assert run is not None, f"run {run_id} is lost"
        return run

    def starts_of(self, job_id: str) -> list[Started]:
        return [start for start in self.starts if start.run.job_id == job_id]
