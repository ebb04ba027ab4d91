"""The clock port: all nodes follow the time of the store, and wait by it."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

# Monotonic; where the platform has such a clock, it keeps counting while the machine sleeps.
_boot_time = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Clock(Protocol):
    """The store's time, as this node knows it."""

    def now(self) -> datetime:
        """The current time, aware and in UTC; never runs backwards."""

    def elapsed(self) -> float:
        """Seconds of a monotonic clock that keeps counting while the process or the machine sleeps."""

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Adjust to the store's time, which was read between two readings of `elapsed`."""

    @property
    def offset(self) -> timedelta:
        """By how much, at least, the last sync found this clock behind the store's."""

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Wait for the event or until the time, and return whether it was the event."""


class StoreClock:
    """The store's time at the last sync plus monotonic time since; the wall clock is not read."""

    def __init__(self, elapsed: Callable[[], float] | None = None) -> None:
        self._elapsed = elapsed or _boot_time
        self._base = 0.0  # now = base + elapsed, in seconds since 1970
        self._last = 0.0
        self._offset = timedelta()
        self._synced = False

    def now(self) -> datetime:
        reading = self._base + self._elapsed()
        if reading < self._last:
            reading = self._last
        self._last = reading
        return datetime.fromtimestamp(reading, UTC)

    def elapsed(self) -> float:
        return self._elapsed()

    @property
    def offset(self) -> timedelta:
        return self._offset

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Adjust to the store's time, which was read at an unknown instant between `asked_at` and `answered_at`.

        The first sync assumes that it was read at the end, so this clock may be behind but never ahead. Later syncs
        change it only if it cannot be right, and then as little as possible.
        """
        lowest, highest = store_time.timestamp() - answered_at, store_time.timestamp() - asked_at
        if not self._synced:
            self._base, self._synced = lowest, True
            return
        base = min(max(self._base, lowest), highest)
        self._offset = timedelta(seconds=base - self._base)
        self._base = base

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        if event.is_set():
            return True
        timeout = None if until is None else max((until - self.now()).total_seconds(), 0)
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        return True
