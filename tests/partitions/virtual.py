"""Virtual time for a whole cluster: one clock for everybody, and a loop that jumps from timer to timer."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.stores.dynamodb import times
from tests.simulation.virtual import MICROS, SimulatedLoop

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
EPOCH = START.timestamp()


class VirtualClock:
    """The time of the loop, which every node reads without an error."""

    offset = timedelta()

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._micros = -1
        self._now = START

    def now(self) -> datetime:
        if (micros := self._loop.micros) != self._micros:
            self._micros, self._now = micros, START + timedelta(microseconds=micros)
        return self._now

    def elapsed(self) -> float:
        return self._loop.time()

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Do nothing: the store has the same clock."""

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


def seconds(loop: SimulatedLoop) -> float:
    """Seconds since 1970, by the clock of everybody."""
    return EPOCH + loop.micros / MICROS


def run_in_virtual_time(main: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    """Run to the end on a loop whose time jumps from timer to timer, and end what is left of it."""
    loop = SimulatedLoop()

    async def ended() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    clocks = times.steady, times.wall
    try:
        times.steady, times.wall = loop.time, VirtualClock(loop).now
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main(loop))
        loop.run_until_complete(ended())
    finally:
        times.steady, times.wall = clocks
        asyncio.set_event_loop(None)
        loop.close()
