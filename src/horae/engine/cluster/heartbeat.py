"""Gives the heartbeat its own thread and connection, so that a busy event loop does not look dead.

But a node whose event loop stands still does nothing for what it holds, and others wait for it as long as it beats. So
it stops beating when that has lasted as long as a silence after which nodes are buried.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from horae.engine.cluster.lease import Heartbeat, Timing
from horae.engine.cluster.watchdog import Watchdog
from horae.loop import Loop
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)


class HeartbeatThread:
    """Runs a heart in a thread until it is stopped."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        make_heart: Callable[[Store], Heartbeat],
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._open_store = open_store
        self._make_heart = make_heart
        self._clock = clock
        self._timing = timing
        self._thread = threading.Thread(target=self._main, name="horae-heartbeat", daemon=True)
        self._ready = threading.Event()
        self._loop: Loop | None = None
        self._events: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._death: asyncio.Event | None = None  # of the event loop that started us
        self._watch: Watchdog | None = None  # over that event loop
        self._stood = 0.0  # seconds for which it has not turned
        self.heart: Heartbeat | None = None

    async def start(self) -> Heartbeat:
        """Connect, register the node and begin to beat; raises what hindered it."""
        self._owner = asyncio.get_running_loop()
        self._death = asyncio.Event()
        heartbeat = self._timing.heartbeat.total_seconds()
        self._watch = Watchdog(self._clock.elapsed, at_most=heartbeat, turned=self._turned)
        self._thread.start()
        await asyncio.to_thread(self._ready.wait)
        if self._failure is not None:
            raise self._failure
        assert self.heart is not None
        return self.heart

    async def failed(self) -> None:
        """Return only by raising what ended the heartbeat, which should never end by itself."""
        assert self._death is not None
        await self._death.wait()
        assert self._failure is not None
        raise self._failure

    def wake(self) -> None:
        """Beat now rather than at the next interval."""
        self._call(lambda loop: loop.wake())

    async def stop(self) -> None:
        """End the thread; the lease is left to whoever unregisters the node."""
        self._call(lambda loop: loop.stop())
        await asyncio.to_thread(self._thread.join)

    def _call(self, act: Callable[[Loop], None]) -> None:
        if self._events is not None and self._loop is not None and not self._events.is_closed():
            self._events.call_soon_threadsafe(act, self._loop)

    def _main(self) -> None:
        try:
            asyncio.run(self._beat())
        except BaseException as exc:  # noqa: BLE001 - raised again where somebody waits: in `start` or in `failed`
            self._failure = exc
            assert self._death is not None
            if not self._owner.is_closed():
                self._owner.call_soon_threadsafe(self._death.set)
        finally:
            self._ready.set()

    async def _beat(self) -> None:
        store = await self._open_store()
        try:
            heart = self._make_heart(store)
            await heart.join()
            self._events = asyncio.get_running_loop()
            self._loop = Loop("heartbeat", self._beat_once, self._clock, idle=self._timing.heartbeat)
            self.heart = heart
            self._ready.set()
            await self._loop.run()
        finally:
            await store.close()

    async def _beat_once(self) -> datetime | None:
        assert self.heart is not None
        if self._stands_still():
            return None
        return await self.heart.tick()

    def _turned(self) -> None:
        if self._stood > 0:
            self.wake()  # the lease may need it

    def _stands_still(self) -> bool:
        """Whether the event loop of the node has not turned for so long that others should not wait for it."""
        assert self._watch is not None
        stood, before = self._watch.look(), self._stood
        heartbeat, longest = self._timing.heartbeat.total_seconds(), self._timing.dead_after.total_seconds()
        if stood >= heartbeat > before:
            log.warning("event_loop_blocked", seconds=round(stood, 1), at=self._watch.place())
        if stood >= longest > before:
            log.error("event_loop_stands_still", seconds=round(stood, 1), at=self._watch.place(), then="no more beats")
        if stood < heartbeat <= before:
            log.warning("event_loop_turns_again", seconds=round(before, 1))
        self._stood = stood
        return stood >= longest
