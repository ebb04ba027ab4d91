"""The clock of a node: the store's time, steady, never backwards."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from horae.adapters import sync_clock
from horae.ports.clock import StoreClock
from horae.ports.store import Store as AnyStore
from tests.clocks import ManualClock

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Steady:
    """A steady clock that moves by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def synced(steady: Steady, store_time: datetime = NOON) -> StoreClock:
    clock = StoreClock(steady)
    clock.sync(store_time, asked_at=steady(), answered_at=steady())
    return clock


def close(one: datetime, other: datetime, within: float = 1e-5) -> bool:
    return abs((one - other).total_seconds()) <= within


def test_it_shows_the_time_of_the_store_plus_what_has_elapsed() -> None:
    steady = Steady()
    clock = synced(steady)
    steady.seconds += 90
    assert close(clock.now(), NOON + timedelta(seconds=90))


@pytest.mark.parametrize(("there", "back"), [(0.4, 0.0), (0.2, 0.2), (0.0, 0.4)])
def test_it_is_never_ahead_of_the_store_however_long_the_question_or_the_answer_took(there: float, back: float) -> None:
    steady = Steady()
    clock = StoreClock(steady)
    for _ in range(3):
        asked_at = steady()
        steady.seconds += there
        said = NOON + timedelta(seconds=steady() - 1000)
        steady.seconds += back
        clock.sync(said, asked_at=asked_at, answered_at=steady())
        truth = NOON + timedelta(seconds=steady() - 1000)
        assert close(clock.now(), truth - timedelta(seconds=back))
        steady.seconds += 3


async def test_a_new_clock_goes_by_the_quickest_answer() -> None:
    steady = Steady()
    start = steady()

    class Store:
        """Its first answer is long under way, the others are not."""

        trips = iter([(0.0, 0.008), (0.0002, 0.0002), (0.0003, 0.0001), (0.0002, 0.0004)])

        async def time(self) -> datetime:
            there, back = next(self.trips)
            steady.seconds += there
            answer = NOON + timedelta(seconds=steady() - start)
            steady.seconds += back
            return answer

    clock = StoreClock(steady)
    await sync_clock(clock, cast(AnyStore, Store()))
    behind = NOON + timedelta(seconds=steady() - start) - clock.now()
    assert timedelta() <= behind <= timedelta(seconds=0.00011)


@pytest.mark.parametrize("seconds", [0.4, -0.4])
def test_an_error_is_mended_as_far_as_it_is_certain_and_reported(seconds: float) -> None:
    steady = Steady()
    clock = synced(steady)
    error = timedelta(seconds=seconds)
    clock.sync(NOON + error, asked_at=steady() - 0.1, answered_at=steady() + 0.1)
    certain = error - timedelta(seconds=0.1 if seconds > 0 else -0.1)
    assert close(NOON + clock.offset, NOON + certain)
    steady.seconds += 1
    assert close(clock.now(), NOON + certain + timedelta(seconds=1))


def test_a_slow_answer_is_no_error() -> None:
    steady = Steady()
    clock = synced(steady)
    clock.sync(NOON + timedelta(seconds=-1.4), asked_at=steady() - 3, answered_at=steady())
    assert clock.offset == timedelta()


def test_an_error_within_the_uncertainty_of_the_reading_is_no_error() -> None:
    steady = Steady()
    clock = synced(steady)
    before = clock.now()
    clock.sync(NOON + timedelta(milliseconds=3), asked_at=999.99, answered_at=1000.01)
    assert clock.now() == before


def test_a_store_that_jumps_ahead_is_followed_at_once() -> None:
    steady = Steady()
    clock = synced(steady)
    clock.sync(NOON + timedelta(hours=1), asked_at=steady(), answered_at=steady())
    assert close(clock.now(), NOON + timedelta(hours=1))


def test_time_stands_still_rather_than_run_backwards() -> None:
    steady = Steady()
    clock = synced(steady)
    clock.now()
    clock.sync(NOON - timedelta(hours=1), asked_at=steady(), answered_at=steady())
    assert close(clock.now(), NOON)
    steady.seconds += 1800
    assert close(clock.now(), NOON)
    steady.seconds += 1900
    assert clock.now() > NOON


async def test_a_wait_ends_with_the_event_or_with_the_time() -> None:
    clock = StoreClock()
    clock.sync(NOON, asked_at=clock.elapsed(), answered_at=clock.elapsed())
    event = asyncio.Event()
    assert not await clock.wait(event, clock.now() + timedelta(milliseconds=5))
    asyncio.get_running_loop().call_later(0.005, event.set)
    assert await clock.wait(event, None)
    assert await clock.wait(event, clock.now() - timedelta(hours=1))


def test_a_manual_clock_moves_only_forward() -> None:
    clock = ManualClock(NOON)
    assert clock.advance(hours=1) == NOON + timedelta(hours=1)
    assert clock.elapsed() == 3600
    with pytest.raises(ValueError, match="backwards"):
        clock.move_to(NOON)
