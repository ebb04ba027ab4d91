"""One process with its roles: starts every duty, passes signals on, and stops them in the order that loses nothing."""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import structlog

from horae.core.errors import InternalError, Unavailable
from horae.core.signals import Kind, Signal
from horae.engine.cluster.heartbeat import HeartbeatThread
from horae.engine.cluster.lease import Heartbeat, Lease, Timing
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.worker.settler import Settler
from horae.engine.worker.timer import UVLOOP_SECONDS, LoopTimer
from horae.engine.worker.worker import Worker
from horae.loop import Loop
from horae.ports.clock import Clock
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
        pulse: HeartbeatThread,
        janitor: Janitor,
        retention: Retention,
        planner: Planner | None,
        worker: Worker | None,
        settler: Settler | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing
        self._pulse = pulse
        self._worker = worker
        self._heart: Heartbeat | None = None
        self._loops: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._events: asyncio.AbstractEventLoop | None = None
        self._add("janitor", janitor.tick, timing.heartbeat)
        self._add("retention", retention.tick, timedelta(hours=1))
        self._planning = self._add("planner", planner.tick, IDLE) if planner else None
        self._claiming = self._stopping = self._settling = None
        if worker is not None and settler is not None:
            self._claiming = self._add("claims", worker.tick, timing.lead)  # a lost signal costs no more than that
            self._stopping = self._add("stops", self._obey_stops, timing.heartbeat)
            self._settling = self._add("results", settler.tick, IDLE)
            self._add("lease", self._check_lease, LEASE_CHECK)
            worker.alarm = LoopTimer(clock, worker.release_due, resolution=UVLOOP_SECONDS)
            worker.wake = self._claiming.wake
            settler.wake = self._settling.wake

    @property
    def ready(self) -> bool:
        """Whether this node is registered and its lease is good."""
        return self._heart is not None and self._lease.safe

    async def start(self) -> None:
        """Join the cluster and begin every duty."""
        self._events = asyncio.get_running_loop()
        self._heart = await self._pulse.start()
        self._unsubscribe = self._store.subscribe(self._heard)
        self._tasks = [asyncio.create_task(loop.run(), name=loop.name) for loop in self._loops]

    async def failed(self) -> None:
        """Return only by raising what ended a duty that should never end."""
        heartbeat = asyncio.create_task(self._pulse.failed(), name="heartbeat")
        try:
            done, _ = await asyncio.wait({*self._tasks, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heartbeat.cancel()
        for task in done:
            task.result()
            raise InternalError(f"the duty {task.get_name()} ended by itself")

    async def stop(self) -> None:
        """Finish what runs within the drain time, give the rest back, leave the cluster."""
        self._unsubscribe()
        if self._worker is not None:
            await self._drain(self._worker)
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pulse.stop()
        await self._leave()

    async def _leave(self) -> None:
        if self._heart is None:
            return
        try:
            await self._store.unregister(self._heart.node.id)
        except Unavailable as exc:
            log.warning("left_without_goodbye", reason=str(exc))  # the others will notice that we no longer beat

    def beaten(self) -> None:
        """Called from the heart's thread after every beat."""
        if self._events is not None and not self._events.is_closed():
            self._events.call_soon_threadsafe(self._after_beat)

    def _add(self, name: str, tick: Callable[[], object], idle: timedelta) -> Loop:
        loop = Loop(name, tick, self._clock, idle=idle)  # type: ignore[arg-type]
        self._loops.append(loop)
        return loop

    def _after_beat(self) -> None:
        if self._lease.lost and self._heart is not None:
            if self._worker is not None:
                self._worker.abandon_all()
            self._heart.rejoin = True
            self._pulse.wake()
        elif self._claiming is not None and self._worker is not None and self._worker.suspended:
            self._claiming.wake()

    def _heard(self, signal: Signal) -> None:
        if signal.kind in (Kind.DUE, Kind.ANY) and self._worker is not None:
            self._worker.heard(signal.at)
        if signal.kind in (Kind.PLAN, Kind.ANY) and self._planning is not None:
            self._planning.wake(signal.at)
        if signal.kind is Kind.ANY and self._stopping is not None:
            self._stopping.wake()
        if signal.kind is Kind.STOP and self._stopping is not None and signal.node in (None, self.node_id):
            self._stopping.wake()

    @property
    def node_id(self) -> str | None:
        """The id under which this node is registered now."""
        return None if self._heart is None else self._heart.node.id

    async def _obey_stops(self) -> datetime | None:
        assert self._worker is not None
        await self._worker.obey_stops()
        return None

    async def _check_lease(self) -> datetime | None:
        assert self._worker is not None
        self._worker.check_lease()
        return None

    async def _drain(self, worker: Worker) -> None:
        assert self._settling is not None
        worker.begin_drain()
        self._settling.wake()
        if worker.running:
            log.info("draining", running=worker.running, seconds=self._timing.drain.total_seconds())
        deadline = self._clock.now() + self._timing.drain
        await self._until(lambda: not worker.running, deadline)
        worker.end_drain()
        await self._until(lambda: not worker.running and not worker.unsettled, self._clock.now() + timedelta(seconds=5))

    async def _until(self, condition: Callable[[], bool], deadline: datetime) -> None:
        while not condition() and self._clock.now() < deadline:  # noqa: ASYNC110 - two counters, looked at once in a life
            await asyncio.sleep(0.02)


def describe_roles(roles: Collection[str]) -> str:
    """Roles in the order people expect."""
    return ", ".join(role for role in ("api", "planner", "worker") if role in roles)
