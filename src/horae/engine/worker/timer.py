"""Calls a function at one instant of the clock, by a timer of the event loop."""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from horae.ports.clock import Clock

UVLOOP_SECONDS = 0.001  # resolution of uvloop's timers


class Timer(Protocol):
    """Calls a function at one instant; setting it again replaces the instant."""

    def set(self, at: datetime | None) -> None: ...


class LoopTimer:
    """A timer of the running event loop.

    With a `resolution` in seconds a wait is rounded up to whole multiples of it. An event loop that rounds to the
    nearest multiple calls too early half of the time; the rest of the wait is then too short for it to sleep, and it
    spins.
    """

    def __init__(self, clock: Clock, call: Callable[[], object], *, resolution: float = 0.0) -> None:
        self._clock = clock
        self._call = call
        self._resolution = resolution
        self._handle: asyncio.TimerHandle | None = None
        self._at: datetime | None = None

    def set(self, at: datetime | None) -> None:
        """Replace the instant; None means never."""
        if self._handle is not None:
            if self._at == at:
                return
            self._handle.cancel()
            self._handle = None
        self._at = at
        if at is not None:
            self._handle = asyncio.get_running_loop().call_later(self._wait(at), self._fire)

    def _wait(self, at: datetime) -> float:
        seconds = max((at - self._clock.now()).total_seconds(), 0)
        return math.ceil(seconds / self._resolution) * self._resolution if self._resolution else seconds

    def _fire(self) -> None:
        self._handle = self._at = None
        self._call()
