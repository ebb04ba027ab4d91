"""Sends the heartbeats from a thread and a connection of its own, so that a busy event loop does not look dead.

But a node whose event loop is blocked does nothing for the runs that it holds, and other nodes wait for it as long as
its heartbeats come. So they end once it has been blocked for `dead_after`.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.lease import Timing
from horae.engine.cluster.watchdog import Watchdog
from horae.loop import Loop
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)


class HeartbeatThread:
    """Runs the heartbeat in a thread until it is stopped."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        make_heartbeat: Callable[[Store], Heartbeat],
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._open_store = open_store
        self._make_heartbeat = make_heartbeat
        self._clock = clock
        self._timing = timing
        self._thread = threading.Thread(target=self._main, name="horae-heartbeat", daemon=True)
        self._ready = threading.Event()
        self._loop: Loop | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._failed: asyncio.Event | None = None  # of the event loop that started us
        self._watchdog: Watchdog | None = None  # over that event loop
        self._blocked = 0.0  # seconds for which it has been blocked
        self.heartbeat: Heartbeat | None = None

    async def start(self, after_beat: Callable[[], None]) -> Heartbeat:
        """Connect, register the node and start the heartbeats; raises what prevented it.

        `after_beat` is called on the running event loop after every heartbeat.
        """
        self._owner = asyncio.get_running_loop()
        self._after_beat = after_beat
        self._failed = asyncio.Event()
        heartbeat = self._timing.heartbeat.total_seconds()
        self._watchdog = Watchdog(self._clock.elapsed, at_most=heartbeat, responded=self._responded)
        self._thread.start()
        await asyncio.to_thread(self._ready.wait)
        if self._failure is not None:
            raise self._failure
        assert self.heartbeat is not None
        return self.heartbeat

    async def failed(self) -> None:
        """Wait until the heartbeats end, which they should never do, and raise the error."""
        assert self._failed is not None
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def wake(self) -> None:
        """Send a heartbeat now rather than at the next interval."""
        self._call(lambda loop: loop.wake())

    async def stop(self) -> None:
        """End the thread; the caller unregisters the node."""
        self._call(lambda loop: loop.stop())
        await asyncio.to_thread(self._thread.join)

    def _call(self, act: Callable[[Loop], None]) -> None:
        if self._thread_loop is not None and self._loop is not None and not self._thread_loop.is_closed():
            self._thread_loop.call_soon_threadsafe(act, self._loop)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as exc:  # noqa: BLE001 - raised again in `start` or in `failed`
            self._failure = exc
            assert self._failed is not None
            if not self._owner.is_closed():
                self._owner.call_soon_threadsafe(self._failed.set)
        finally:
            self._ready.set()

    async def _run(self) -> None:
        store = await self._open_store()
        try:
            heartbeat = self._make_heartbeat(store)
            await heartbeat.join()
            self._thread_loop = asyncio.get_running_loop()
            self._loop = Loop("heartbeat", self._beat, self._clock, idle=self._timing.heartbeat)
            self.heartbeat = heartbeat
            self._ready.set()
            await self._loop.run()
        finally:
            await store.close()

    async def _beat(self) -> datetime | None:
        assert self.heartbeat is not None
        if self._stalled():
            return None
        again = await self.heartbeat.tick()
        if not self._owner.is_closed():
            self._owner.call_soon_threadsafe(self._after_beat)
        return again

    def _responded(self) -> None:
        if self._blocked > 0:
            self.wake()  # the lease may need it

    def _stalled(self) -> bool:
        """Return whether the event loop of the node has been blocked for so long that others should not wait for it."""
        assert self._watchdog is not None
        blocked, before = self._watchdog.check(), self._blocked
        heartbeat, longest = self._timing.heartbeat.total_seconds(), self._timing.dead_after.total_seconds()
        if blocked >= heartbeat > before:
            log.warning("event_loop_blocked", seconds=round(blocked, 1), at=self._watchdog.place())
        if blocked >= longest > before:
            log.error("event_loop_stalled", seconds=round(blocked, 1), at=self._watchdog.place(), then="heartbeats end")
        if blocked < heartbeat <= before:
            log.warning("event_loop_recovered", seconds=round(before, 1))
        self._blocked = blocked
        return blocked >= longest
