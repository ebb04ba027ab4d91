"""Clocks for tests."""

import asyncio
from datetime import datetime, timedelta


class ManualClock:
    """A clock that moves only when the test moves it."""

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
        """A manual clock does not follow the store."""

    def advance(self, **units: float) -> datetime:
        """Move forward by `timedelta(**units)`."""
        return self.move_to(self._now + timedelta(**units))

    def move_to(self, moment: datetime) -> datetime:
        """Move forward to a moment."""
        if moment < self._now:
            raise ValueError(f"a clock does not run backwards: {moment} is before {self._now}")
        self._now = moment
        return moment

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Return at once: time does not pass while waiting."""
        return event.is_set()
