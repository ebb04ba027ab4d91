"""Compares the wall clock of this machine, which the engine does not use, with the store's, and logs differences."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from horae.ports.clock import Clock

log = structlog.get_logger(__name__)

LOUD = timedelta(seconds=1)


class WallClockMonitor:
    """Measures the offset of the wall clock now and then."""

    def __init__(self, clock: Clock, wall: Callable[[], float] = time.time) -> None:
        """`wall` returns seconds since 1970."""
        self._clock = clock
        self._wall = wall
        self._logged = timedelta()

    def check(self) -> timedelta:
        """Return how far the wall clock is ahead of the store's; a change is logged once."""
        offset = timedelta(seconds=self._wall() - self._clock.now().timestamp())
        if abs(offset - self._logged) > LOUD:
            if abs(offset) > LOUD:
                log.warning("wall_clock_wrong", ahead_seconds=round(offset.total_seconds(), 1))
            else:
                log.info("wall_clock_corrected")
            self._logged = offset
        return offset
