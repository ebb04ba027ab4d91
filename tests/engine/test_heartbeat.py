"""The heartbeat's own thread: it starts, it stops, and its death is noticed."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from horae.core.errors import Unavailable
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.heartbeat_thread import HeartbeatThread
from horae.engine.cluster.lease import Timing
from horae.engine.cluster.watchdog import Watchdog
from horae.ports.clock import StoreClock
from horae.ports.store import Store


class StoreDouble:
    """A store that can be closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


class HeartbeatDouble:
    """A heartbeat that joins and ticks until it is broken."""

    def __init__(self, *, joins: bool = True) -> None:
        self.joins, self.broken = joins, False

    async def join(self) -> None:
        if not self.joins:
            raise Unavailable("the store did not answer")

    async def tick(self) -> datetime | None:
        if self.broken:
            raise ZeroDivisionError
        return datetime(1970, 1, 1, tzinfo=UTC)  # again at once


def _nothing() -> None:
    """What these tests do after a heartbeat."""


def thread_of(heartbeat: HeartbeatDouble, store: StoreDouble) -> HeartbeatThread:
    async def open_store() -> Store:
        return cast(Store, store)

    return HeartbeatThread(open_store, lambda _: cast(Heartbeat, heartbeat), StoreClock(), Timing())


async def test_it_beats_until_it_is_stopped_and_lets_its_store_go() -> None:
    store, heartbeat = StoreDouble(), HeartbeatDouble()
    beating = thread_of(heartbeat, store)
    assert await beating.start(_nothing) is cast(Heartbeat, heartbeat)
    async with asyncio.timeout(5):
        await beating.stop()
    assert store.closed


async def test_a_node_that_cannot_join_does_not_start() -> None:
    with pytest.raises(Unavailable):
        await thread_of(HeartbeatDouble(joins=False), StoreDouble()).start(_nothing)


async def test_a_heart_that_stops_for_no_known_reason_is_noticed() -> None:
    heartbeat = HeartbeatDouble()
    beating = thread_of(heartbeat, StoreDouble())
    await beating.start(_nothing)
    heartbeat.broken = True
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5):
            await beating.failed()
    await beating.stop()


class CountingHeartbeat(HeartbeatDouble):
    """A heartbeat that records its ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[float] = []

    async def tick(self) -> datetime | None:
        self.beats.append(time.monotonic())
        return None


async def test_a_node_whose_event_loop_stands_still_stops_beating_until_it_turns_again() -> None:
    heartbeat = CountingHeartbeat()

    async def open_store() -> Store:
        return cast(Store, StoreDouble())

    timing = Timing(heartbeat=timedelta(seconds=0.05), dead_after=timedelta(seconds=0.3))
    beating = HeartbeatThread(open_store, lambda _: cast(Heartbeat, heartbeat), StoreClock(), timing)
    await beating.start(_nothing)
    with capture_logs() as lines:
        blocked_at = time.monotonic()
        time.sleep(2)  # noqa: ASYNC251 - as a handler does that keeps the event loop to itself
        turned_at = time.monotonic()
        async with asyncio.timeout(5):
            while heartbeat.beats[-1] < turned_at:  # noqa: ASYNC110 - the heartbeat has no event
                await asyncio.sleep(0.01)
        await beating.stop()
    meanwhile = [beat - blocked_at for beat in heartbeat.beats if blocked_at < beat < turned_at]
    assert meanwhile  # a busy loop does not look dead
    assert max(meanwhile) < 1.5
    events = [line["event"] for line in lines]
    assert events[:2] == ["event_loop_blocked", "event_loop_stalled"]
    assert "test_heartbeat.py" in lines[0]["at"]


async def test_a_loop_that_turns_now_and_then_is_not_called_still() -> None:
    now = 0.0
    watchdog = Watchdog(lambda: now, at_most=3)
    for _ in range(10):
        assert watchdog.check() == 0
        now += 3
        await asyncio.sleep(0)


async def test_a_freeze_of_all_threads_counts_as_one_look() -> None:
    now = 0.0
    watchdog = Watchdog(lambda: now, at_most=3)
    assert watchdog.check() == 0
    now += 1000  # everybody slept
    assert watchdog.check() == 3
    now += 2
    assert watchdog.check() == 5
    await asyncio.sleep(0)
    assert watchdog.check() == 0
