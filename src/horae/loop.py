"""The only loop: tick, wait for the next time or a wake-up, back off while a backend is down, stop."""

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


class Loop:
    """Runs one duty until it is stopped.

    A tick answers when it wants to be called again (None: only when woken); the loop never waits longer than `idle`.
    """

    def __init__(self, name: str, tick: Tick, clock: Clock, *, idle: timedelta) -> None:
        self.name = name
        self._tick = tick
        self._clock = clock
        self._idle = idle
        self._woken = asyncio.Event()
        self._wake_at: datetime | None = None
        self._stopping = False
        self._backoff = 0.0

    def wake(self, at: datetime | None = None) -> None:
        """Have the duty look at `at`, or now."""
        if at is not None and at > self._clock.now():
            if self._wake_at is None or at < self._wake_at:
                self._wake_at = at
                self._woken.set()  # so that the wait is shortened
            return
        self._wake_at = self._clock.now()
        self._woken.set()

    def stop(self) -> None:
        """End after the tick that is under way."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Tick until stopped; only errors that nobody foresaw come out."""
        while not self._stopping:
            self._wake_at = None
            self._woken.clear()
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
            log.info("backend_answers_again", duty=self.name)
        self._backoff = 0.0
        return again

    async def _rest(self, again: datetime | None) -> None:
        """Wait until `again`, a wake-up that is due, or the idle limit.

        By the steady clock as well: that of the store stands still here for as long as it was set back.
        """
        limit = self._clock.now() + self._idle
        until = limit if again is None else min(again, limit)
        while not self._stopping:
            if self._wake_at is not None and not self._backoff:
                until = min(until, self._wake_at)
            if until <= self._clock.now():
                await asyncio.sleep(0)  # whatever a duty does, the others get their turn
                return
            self._woken.clear()
            rested_at = self._clock.elapsed() + (until - self._clock.now()).total_seconds()
            if not await self._clock.wait(self._woken, until) and self._clock.elapsed() >= rested_at:
                return
