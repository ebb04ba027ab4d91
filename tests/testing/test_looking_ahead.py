"""Virtual time in long strides: runs are claimed far ahead, and all that happens is the same as in small steps."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae import Horae, Queue, Retry, Run, cron, every
from horae.testing import START, RunView, System

MINUTE = timedelta(minutes=1)
STEP = timedelta(seconds=20)  # less than a planner plans ahead anyway
CPU_US = 400  # of a run a minute; it took 1,600 when each was planned, claimed and written by itself

Story = list[tuple[Any, ...]]


def story_of(app: Horae, *, start: datetime, lasts: timedelta, step: timedelta) -> Story:
    """All that became of the runs of an application, told in steps of virtual time."""
    with System(start=start).use(app) as system:
        while system.now < start + lasts:
            system.advance(min(step, start + lasts - system.now))
        return [_told(run) for run in sorted(system.runs(), key=lambda run: (run.due_at, run.task, str(run.params)))]


def _told(run: RunView) -> tuple[Any, ...]:
    attempts = [(each.number, each.outcome, each.started_at, each.finished_at) for each in run.attempts]
    times = (run.slot, run.due_at, run.started_at, None if run.status == "skipped" else run.finished_at)
    return run.task, dict(run.params), run.status, run.reason, run.trigger, run.crashes, *times, attempts, run.result


def overlapping() -> Horae:
    app = Horae(name="overlapping")

    @app.schedule(every(minutes=1))
    async def quick(run: Run) -> str:
        return run.due_at.isoformat()

    @app.schedule(every(minutes=2))
    async def skipping() -> None:
        await asyncio.sleep(150)

    @app.schedule(every(minutes=3), overlap="buffer_one")
    async def buffered(run: Run) -> None:
        await asyncio.sleep(400 if run.due_at.minute < 30 else 10)

    @app.schedule(every(minutes=1), overlap="allow")
    async def parallel() -> None:
        await asyncio.sleep(90)

    @app.schedule(every(minutes=4), ordering_key="one")
    async def first() -> None:
        await asyncio.sleep(200)

    @app.schedule(every(minutes=4), ordering_key="one", start_within=150)
    async def second() -> None:
        await asyncio.sleep(20)

    return app


def failing() -> Horae:
    app = Horae(name="failing")

    @app.schedule(every(minutes=5), max_retries=2, retry=Retry(initial=20, jitter=False))
    async def flaky(run: Run) -> int:
        if run.attempt < 3:
            raise ValueError("not yet")
        return run.attempt

    @app.schedule(every(minutes=1), max_retries=3, retry=Retry(initial=45, jitter=False), overlap="buffer_one")
    async def hopeless(run: Run) -> None:
        if run.due_at.minute % 7 == 0:
            raise ValueError("never")

    @app.schedule(every(minutes=3), timeout=30, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.schedule(every(minutes=1))
    def plain(run: Run) -> int:
        return run.due_at.minute

    return app


def submitting() -> Horae:
    app = Horae(name="submitting")

    @app.task
    async def child(minute: int) -> int:
        await asyncio.sleep(minute)
        return minute

    @app.task
    def ordered(minute: int) -> int:
        return minute

    @app.schedule(every(minutes=1))
    async def parent(run: Run) -> None:
        minute = run.due_at.minute
        await child.using(delay=90, priority=minute % 3).submit(minute=minute)
        if minute % 4 == 0:
            await ordered.using(ordering_key="all", delay=minute).submit_many([{"minute": n} for n in range(3)])

    @app.schedule(every(minutes=7))
    async def asking(run: Run) -> int:
        later = await child.using(delay=30).submit(minute=run.due_at.minute)
        return await later.result(timeout=600)

    @app.schedule(every(minutes=9))
    async def cancelling(run: Run) -> str:
        waiting = await child.using(delay=300).submit(minute=1)
        await asyncio.sleep(200)
        return await waiting.cancel()

    return app


def limited() -> Horae:
    app = Horae(name="limited", queues=[Queue("narrow", concurrency=2)])

    @app.schedule(every(minutes=1), overlap="allow", queue="narrow")
    async def crowd() -> None:
        await asyncio.sleep(150)

    @app.schedule(every(minutes=10), queue="narrow", priority=5)
    async def urgent() -> None: ...

    return app


def saturated() -> Horae:
    """All slots are busy from the tenth to the twentieth minute; then the important runs come first."""
    app = Horae(name="saturated")

    @app.task
    async def sleeper(minutes: int) -> None:
        await asyncio.sleep(60 * minutes)

    @app.schedule(every(minutes=1), priority=-5)
    async def unimportant() -> None: ...

    @app.schedule(cron("10 9 * * *"))
    async def opening() -> None:
        await sleeper.using(delay=1).submit_many([{"minutes": 10}] * 100)
        await sleeper.using(delay=300, priority=5).submit_many([{"minutes": 1}] * 150)

    return app


def ending() -> Horae:
    app = Horae(name="ending")

    @app.schedule({"type": "every", "seconds": 60, "anchor": "2026-03-29T00:00:00Z", "ends_at": "2026-03-29T01:20:00Z"})
    async def ends() -> None: ...

    @app.schedule(cron("*/10 2 * * *", tz="Europe/Berlin"))
    async def in_the_gap() -> None: ...

    @app.schedule({"type": "cron", "expression": "*/10 * * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}})
    async def skips_the_gap() -> None: ...

    return app


DST = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # half an hour before clocks in Berlin go forward


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (overlapping, START),
        (failing, START),
        (submitting, START),
        (limited, START),
        (saturated, START),
        (ending, DST),
    ],
)
def test_one_long_stride_tells_the_same_story_as_many_small_steps(make: Callable[[], Horae], start: datetime) -> None:
    lasts = timedelta(minutes=100)
    steps = story_of(make(), start=start, lasts=lasts, step=STEP)
    assert len(steps) > 10
    assert story_of(make(), start=start, lasts=lasts, step=lasts) == steps


def test_nothing_is_planned_or_claimed_beyond_the_stride() -> None:
    app = Horae(name="bounded")

    @app.schedule(every(minutes=1))
    async def tick() -> None: ...

    with System().use(app) as system:
        system.advance(hours=5)
        assert {run.status for run in system.runs()} == {"succeeded"}
        system.advance(seconds=45)  # the next is planned twenty seconds before it is due, as in real time
        assert [run.status for run in system.runs()][-2:] == ["succeeded", "scheduled"]


def test_a_worker_that_dies_between_two_strides_loses_nothing() -> None:
    app, starts = Horae(name="dying"), list[datetime]()

    @app.schedule(every(minutes=1))
    async def tick(run: Run) -> None:
        starts.append(run.due_at)

    with System().use(app) as system:
        system.advance(hours=3)
        system.crash_worker()
        system.advance(hours=1)
        assert starts == [START + n * MINUTE for n in range(1, 241)]
        assert {run.status for run in system.runs()} == {"succeeded"}


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_run_a_minute_costs_little_for_a_long_time(kind: str) -> None:
    app, starts = Horae(name="minutely"), list[datetime]()

    if kind == "coroutine":

        @app.schedule(cron("* * * * *"))
        async def tick(run: Run) -> None:
            starts.append(run.due_at)

    else:

        @app.schedule(cron("* * * * *"))
        def tick_in_a_thread(run: Run) -> None:
            starts.append(run.due_at)

    with System().use(app) as system:
        system.advance(hours=6)
        starts.clear()
        began = time.process_time()
        system.advance(days=1)
        cpu_us = (time.process_time() - began) * 1e6 / len(starts)
    assert len(starts) == 24 * 60
    assert starts == sorted(starts)
    assert cpu_us < CPU_US
