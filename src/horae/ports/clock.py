"""The clock port: one time for all nodes, that of the store, and the waiting that goes with it."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

# Steady, and goes on while the machine sleeps, where there is such a clock.
_boot_time = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Clock(Protocol):
    """The time of the store, as this node knows it."""

    def now(self) -> datetime:
        """Aware, in UTC; never runs backwards."""

    def elapsed(self) -> float:
        """Seconds of a steady clock that goes on while the process, or the machine, sleeps."""

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Take in what the store said its time was between two readings of the steady clock."""

    @property
    def offset(self) -> timedelta:
        """How far the last sync found this clock to be behind the store's, at least."""

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Wait for the event, or the time; True when it was the event."""


class StoreClock:
    """Follows the store's clock: its time at the last sync plus steady elapsed time; wall time is not read."""

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
        """Somewhere between the question and the answer the store read its clock; more is not known, nor assumed.

        A new clock is set as if that was at the end, so it is behind by the way of the answer and never ahead. Later it
        moves only when it cannot be right, and then as little as makes it possible.
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


class ManualClock:
    """A clock that moves when told to: for tests and simulations."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._start = now

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> float:
        return (self._now - self._start).total_seconds()

    @property
    def offset(self) -> timedelta:
        return timedelta()

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """A manual clock follows nobody."""

    def advance(self, **units: float) -> datetime:
        """Move on by `timedelta(**units)`."""
        return self.move_to(self._now + timedelta(**units))

    def move_to(self, moment: datetime) -> datetime:
        """Move on to a moment that is not in the past."""
        if moment < self._now:
            raise ValueError(f"a clock does not run backwards: {moment} is before {self._now}")
        self._now = moment
        return moment

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Virtual time does not pass while waiting: the test moves it."""
        return event.is_set()
