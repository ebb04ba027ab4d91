"""The only loop: tick, wait for the next time or a wake-up, back off while a backend is unavailable, stop."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog

from horae.core.errors import Unavailable
from horae.ports.clock import Clock

log = structlog.get_logger(__name__)

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0

Tick = Callable[[], Awaitable[datetime | None]]
Wake = Callable[[datetime | None], None]  # requests a tick at a time; None: now


class Wakeup:
    """A request for an earlier tick, shared by a loop and its wakers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: datetime | None = None  # the earliest time that was requested since the last tick
        self.changed = asyncio.Event()

    def wake(self, at: datetime | None = None) -> None:
        """Request a tick at `at`, or now."""
        now = self._clock.now()
        if at is None or at <= now:
            self.at = now
        elif self.at is None or at < self.at:
            self.at = at
        else:
            return
        self.changed.set()  # so that the wait is shortened

    def clear(self) -> None:
        """Forget the requested time."""
        self.at = None
        self.changed.clear()


class Loop:
    """Runs one duty until it is stopped.

    A tick returns when it wants to be called again (None: only when woken); the loop never waits longer than `idle`.
    """

    def __init__(self, name: str, tick: Tick, clock: Clock, *, idle: timedelta, wakeup: Wakeup | None = None) -> None:
        self.name = name
        self._tick = tick
        self._clock = clock
        self._idle = idle
        self._wakeup = wakeup or Wakeup(clock)
        self._stopping = False
        self._backoff = 0.0

    def wake(self, at: datetime | None = None) -> None:
        """Request a tick at `at`, or now."""
        self._wakeup.wake(at)

    def stop(self) -> None:
        """End after the tick that is under way."""
        self._stopping = True
        self._wakeup.changed.set()

    async def run(self) -> None:
        """Tick until stopped; raises only unexpected errors."""
        while not self._stopping:
            self._wakeup.clear()
            again = await self._guarded_tick()
            await self._rest(again)

    async def _guarded_tick(self) -> datetime | None:
        try:
            again = await self._tick()
        except Unavailable as exc:
            if not self._backoff:
                log.warning("backend_unavailable", duty=self.name, reason=str(exc))
            self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
            return self._clock.now() + timedelta(seconds=self._backoff * random.uniform(0.5, 1))
        if self._backoff:
            log.info("backend_recovered", duty=self.name)
        self._backoff = 0.0
        return again

    async def _rest(self, again: datetime | None) -> None:
        """Wait until `again`, a requested wake-up or the idle limit.

        The monotonic clock must agree that the time has passed: after the store's clock was set back, ours stands still
        for as long.
        """
        limit = self._clock.now() + self._idle
        until = limit if again is None else min(again, limit)
        while not self._stopping:
            if self._wakeup.at is not None and not self._backoff:
                until = min(until, self._wakeup.at)
            if until <= self._clock.now():
                await asyncio.sleep(0)  # whatever a duty does, the others get their turn
                return
            self._wakeup.changed.clear()
            rested_at = self._clock.elapsed() + (until - self._clock.now()).total_seconds()
            if not await self._clock.wait(self._wakeup.changed, until) and self._clock.elapsed() >= rested_at:
                return
