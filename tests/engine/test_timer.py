"""The timer of a worker: never early, and not busy while it waits."""

import asyncio
from datetime import datetime, timedelta

import uvloop

from horae.engine.worker.timer import UVLOOP_SECONDS, LoopTimer
from horae.ports.clock import StoreClock

DEADLINE = 5.0


class Rings:
    """Records when the timer fires, and lets a test wait for it."""

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock
        self.times: list[datetime] = []
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self.times.append(self._clock.now())
        self._rung.set()

    async def next(self) -> datetime:
        async with asyncio.timeout(DEADLINE):
            await self._rung.wait()
        self._rung.clear()
        return self.times[-1]


async def ring_until_due(clock: StoreClock, at: datetime) -> int:
    """Set the timer as a worker does until the instant has come; return how often it fired."""
    rings = Rings(clock)
    timer = LoopTimer(clock, rings.ring, resolution=UVLOOP_SECONDS)
    while clock.now() < at:
        timer.set(at)
        await rings.next()
    return len(rings.times)


def test_it_does_not_spin_through_the_last_part_of_a_millisecond() -> None:
    async def main() -> list[int]:
        clock = StoreClock()
        return [await ring_until_due(clock, clock.now() + timedelta(microseconds=n)) for n in range(100, 2000, 100)]

    assert max(uvloop.run(main())) <= 3


async def test_a_new_instant_replaces_the_old_one() -> None:
    clock = StoreClock()
    rings = Rings(clock)
    timer = LoopTimer(clock, rings.ring)
    soon, sooner = clock.now() + timedelta(hours=1), clock.now() + timedelta(milliseconds=5)
    timer.set(soon)
    timer.set(sooner)
    assert await rings.next() >= sooner
    timer.set(clock.now() + timedelta(milliseconds=5))
    timer.set(None)
    last = clock.now() + timedelta(milliseconds=20)
    timer.set(last)
    assert await rings.next() >= last
    assert len(rings.times) == 2
