"""The loop: when a duty ticks again."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from horae.core.errors import Unavailable
from horae.loop import Loop
from horae.ports.clock import StoreClock

DEADLINE = 5.0


class Duty:
    """Counts its ticks, and calls what it was given for each."""

    def __init__(self, *steps: Callable[[], Awaitable[datetime | None]]) -> None:
        self.steps = list(steps)
        self.ticks = 0
        self.ticked = asyncio.Condition()

    async def tick(self) -> datetime | None:
        async with self.ticked:
            self.ticks += 1
            self.ticked.notify_all()
        return await self.steps.pop(0)() if self.steps else None

    async def reaches(self, ticks: int) -> None:
        async with asyncio.timeout(DEADLINE), self.ticked:
            await self.ticked.wait_for(lambda: self.ticks >= ticks)


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


async def running(loop: Loop) -> asyncio.Task[None]:
    return asyncio.create_task(loop.run())


async def stopped(loop: Loop, task: asyncio.Task[None]) -> None:
    loop.stop()
    async with asyncio.timeout(DEADLINE):
        await task


async def test_a_duty_is_called_at_the_time_it_asks_for(clock: StoreClock) -> None:
    wanted = clock.now() + timedelta(milliseconds=30)

    async def ask() -> datetime | None:
        return wanted

    duty = Duty(ask)
    loop = Loop("test", duty.tick, clock, idle=timedelta(hours=1))
    task = await running(loop)
    await duty.reaches(2)
    assert clock.now() >= wanted
    await stopped(loop, task)


async def test_a_duty_goes_on_although_the_clock_of_the_store_was_set_back(clock: StoreClock) -> None:
    now, elapsed = clock.now(), clock.elapsed()
    for store_time in (now, now - timedelta(hours=1)):
        clock.sync(store_time, asked_at=elapsed, answered_at=elapsed)
        clock.now()
    duty = Duty()
    loop = Loop("test", duty.tick, clock, idle=timedelta(milliseconds=20))
    task = await running(loop)
    await duty.reaches(3)
    await stopped(loop, task)


async def test_a_wake_up_shortens_the_wait(clock: StoreClock) -> None:
    duty = Duty()
    loop = Loop("test", duty.tick, clock, idle=timedelta(hours=1))
    task = await running(loop)
    await duty.reaches(1)
    loop.wake()
    await duty.reaches(2)
    loop.wake(clock.now() + timedelta(milliseconds=20))
    await duty.reaches(3)
    await stopped(loop, task)


async def test_a_wake_up_during_a_tick_is_not_lost(clock: StoreClock) -> None:
    loop: Loop | None = None

    async def wake_myself() -> datetime | None:
        assert loop is not None
        loop.wake()
        return None

    duty = Duty(wake_myself)
    loop = Loop("test", duty.tick, clock, idle=timedelta(hours=1))
    task = await running(loop)
    await duty.reaches(2)
    await stopped(loop, task)


async def test_it_never_waits_longer_than_its_idle_time(clock: StoreClock) -> None:
    duty = Duty()
    loop = Loop("test", duty.tick, clock, idle=timedelta(milliseconds=5))
    task = await running(loop)
    await duty.reaches(3)
    await stopped(loop, task)


async def test_a_backend_that_is_down_is_asked_again_and_wake_ups_do_not_hurry_that(clock: StoreClock) -> None:
    async def down() -> datetime | None:
        raise Unavailable("the store did not answer")

    duty = Duty(down, down)
    loop = Loop("test", duty.tick, clock, idle=timedelta(hours=1))
    began = clock.elapsed()
    task = await running(loop)
    await duty.reaches(1)
    loop.wake()
    await duty.reaches(3)
    assert clock.elapsed() - began >= 0.15, "it did not back off"
    await stopped(loop, task)


async def test_what_nobody_foresaw_ends_the_loop_loudly(clock: StoreClock) -> None:
    async def surprise() -> datetime | None:
        raise ZeroDivisionError

    loop = Loop("test", Duty(surprise).tick, clock, idle=timedelta(hours=1))
    with pytest.raises(ZeroDivisionError):
        await loop.run()
