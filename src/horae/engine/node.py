"""One process with its roles: starts every duty, passes signals on, and stops them in the order that loses nothing."""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import structlog

from horae.core.effects import unregister_node
from horae.core.errors import InternalError, Unavailable
from horae.core.signals import Kind, Signal
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.heartbeat_thread import HeartbeatThread
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.duties.watcher import Watcher
from horae.engine.worker.worker import Worker
from horae.loop import Loop, Tick, Wakeup
from horae.ports.clock import Clock
from horae.ports.queue import Queue
from horae.ports.store import Store

log = structlog.get_logger(__name__)

LEASE_CHECK = timedelta(milliseconds=500)
IDLE = timedelta(seconds=5)


class NodeService:
    """The duties of one node."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        timing: Timing,
        heartbeat_thread: HeartbeatThread,
        janitor: Janitor,
        retention: Retention,
        planner: Planner | None,
        worker: Worker | None,
        queue: Queue | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """`queue` is in front of the store, and `watcher` fills it; None: the store itself is the queue."""
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing
        self._heartbeat_thread = heartbeat_thread
        self._worker = worker
        self._heartbeat: Heartbeat | None = None  # once the node is registered
        self._loops: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._queue = queue
        self._watcher = watcher
        self._unsubscribe: list[Callable[[], None]] = []
        self._leaving = False
        self._add("janitor", janitor.tick, timing.heartbeat)
        self._add("retention", retention.tick, timedelta(hours=1))
        self._planner_loop = self._add("planner", planner.tick, IDLE) if planner else None
        self._watcher_loop = self._add("watcher", watcher.tick, IDLE) if watcher else None
        self._stops_loop: Loop | None = None
        self._taking: asyncio.Task[None] | None = None  # takes tickets from the queue
        if worker is not None:
            self._add("claims", worker.claim, timing.lead, worker.claim_wakeup)  # a lost signal costs at most the lead
            self._stops_loop = self._add("stops", worker.apply_stops, timing.heartbeat)
            self._add("results", worker.settler.tick, IDLE, worker.settle_wakeup)
            if worker.tickets is not None:
                self._add("tickets", worker.take_tickets, timing.lead, worker.tickets_wakeup)
            self._add("lease", worker.withdrawer.check_lease, LEASE_CHECK)

    @property
    def ready(self) -> bool:
        """Whether this node is registered, its lease is safe, and nobody has asked it to stop."""
        return self._heartbeat is not None and self._lease.safe and not self._leaving

    @property
    def node_id(self) -> str | None:
        """The id under which this node is registered now."""
        return None if self._heartbeat is None else self._heartbeat.node.id

    async def start(self) -> None:
        """Join the cluster and start every duty."""
        self._heartbeat = await self._heartbeat_thread.start(self._after_beat)
        self._unsubscribe = [self._store.subscribe(self._on_signal)]
        if self._queue is not None and self._queue.traits.carries_signals:
            self._unsubscribe.append(self._queue.subscribe(self._on_signal))
        self._tasks = [asyncio.create_task(loop.run(), name=loop.name) for loop in self._loops]
        self._taking = next((task for task in self._tasks if task.get_name() == "tickets"), None)

    async def failed(self) -> None:
        """Wait until a duty ends, which none should do, and raise its error."""
        heartbeat = asyncio.create_task(self._heartbeat_thread.failed(), name="heartbeat")
        try:
            done, _ = await asyncio.wait({*self._tasks, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heartbeat.cancel()
        for task in done:
            task.result()
            raise InternalError(f"the duty {task.get_name()} ended by itself")

    async def stop(self) -> None:
        """Finish what runs within the drain time, give the rest back, leave the cluster."""
        self._leaving = True
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        if self._taking is not None:
            self._taking.cancel()  # what it took is given back
        if self._worker is not None:
            await self._drain(self._worker)
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._heartbeat_thread.stop()
        await self._unregister()

    async def _leave_tickets(self, worker: Worker) -> None:
        try:
            if worker.tickets is not None:
                await worker.tickets.leave()
        except Unavailable as exc:
            log.warning("tickets_not_returned", reason=str(exc))  # they come back by themselves

    async def _unregister(self) -> None:
        if self._heartbeat is None:
            return
        try:
            await self._store.apply([unregister_node(self._heartbeat.node)])
        except Unavailable as exc:
            log.warning("unregister_failed", reason=str(exc))  # the others will miss our heartbeats

    def _add(self, name: str, tick: Tick, idle: timedelta, wakeup: Wakeup | None = None) -> Loop:
        loop = Loop(name, tick, self._clock, idle=idle, wakeup=wakeup)
        self._loops.append(loop)
        return loop

    def _after_beat(self) -> None:
        if self._lease.lost and self._heartbeat is not None:
            if self._worker is not None:
                self._worker.withdrawer.abandon_all()
            self._heartbeat.rejoin = True
            self._heartbeat_thread.wake()
        elif self._worker is not None and self._worker.suspended:
            self._worker.claim_wakeup.wake()

    def _on_signal(self, signal: Signal) -> None:
        if signal.kind in (Kind.DUE, Kind.ANY) and self._worker is not None:
            self._worker.signal(signal.at)
        if signal.kind in (Kind.DUE, Kind.ANY) and self._watcher is not None and self._watcher_loop is not None:
            self._watcher_loop.wake(self._watcher.signal(signal.at))
        if signal.kind in (Kind.PLAN, Kind.ANY) and self._planner_loop is not None:
            self._planner_loop.wake(signal.at)
        stops = signal.kind is Kind.ANY or (signal.kind is Kind.STOP and signal.node in (None, self.node_id))
        if stops and self._stops_loop is not None:
            self._stops_loop.wake()

    async def _drain(self, worker: Worker) -> None:
        worker.withdrawer.begin_drain()
        await self._leave_tickets(worker)
        worker.settle_wakeup.wake()
        if worker.running:
            log.info("draining", running=worker.running, seconds=self._timing.drain.total_seconds())
        deadline = self._clock.now() + self._timing.drain
        await self._until(lambda: not worker.running, deadline)
        worker.withdrawer.end_drain()
        settled_by = self._clock.now() + timedelta(seconds=5)
        await self._until(lambda: not worker.running and not worker.settler.unsettled, settled_by)
        worker.failures.close()

    async def _until(self, condition: Callable[[], bool], deadline: datetime) -> None:
        while not condition() and self._clock.now() < deadline:  # noqa: ASYNC110 - two counters, polled once in a life
            await asyncio.sleep(0.02)


def describe_roles(roles: Collection[str]) -> str:
    """Return the roles in the order that people expect."""
    return ", ".join(role for role in ("api", "planner", "worker") if role in roles)
