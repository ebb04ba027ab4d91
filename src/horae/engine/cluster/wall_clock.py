"""Watches the wall clock of this machine, which nothing here goes by, and tells when it is not the store's."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from horae.ports.clock import Clock

log = structlog.get_logger(__name__)

LOUD = timedelta(seconds=1)


class WallClockMonitor:
    """Compares two clocks now and then."""

    def __init__(self, clock: Clock, wall: Callable[[], float] = time.time) -> None:
        """`wall` answers seconds since 1970."""
        self._clock = clock
        self._wall = wall
        self._told = timedelta()

    def look(self) -> timedelta:
        """How far the wall clock is ahead of the store's; a change is logged once."""
        offset = timedelta(seconds=self._wall() - self._clock.now().timestamp())
        if abs(offset - self._told) > LOUD:
            if abs(offset) > LOUD:
                log.warning("wall_clock_wrong", ahead_seconds=round(offset.total_seconds(), 1))
            else:
                log.info("wall_clock_right_again")
            self._told = offset
        return offset
