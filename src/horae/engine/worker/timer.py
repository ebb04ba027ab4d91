"""Calls back at one instant of the clock, by a timer of the event loop."""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from horae.ports.clock import Clock

UVLOOP_SECONDS = 0.001  # what the timers of uvloop are rounded to


class LoopTimer:
    """One timer, set to one instant at a time.

    With a `resolution` in seconds a wait is rounded up to whole ones. An event loop that rounds to the nearest rings
    too early half of the time, and what is left is then too short for it to sleep at all: it spins.
    """

    def __init__(self, clock: Clock, ring: Callable[[], object], *, resolution: float = 0.0) -> None:
        self._clock = clock
        self._ring = ring
        self._resolution = resolution
        self._timer: asyncio.TimerHandle | None = None
        self._at: datetime | None = None

    def set(self, at: datetime | None) -> None:
        """Replace the instant; None means never."""
        if self._timer is not None:
            if self._at == at:
                return
            self._timer.cancel()
            self._timer = None
        self._at = at
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(self._wait(at), self._fire)

    def _wait(self, at: datetime) -> float:
        seconds = max((at - self._clock.now()).total_seconds(), 0)
        return math.ceil(seconds / self._resolution) * self._resolution if self._resolution else seconds

    def _fire(self) -> None:
        self._timer = self._at = None
        self._ring()
