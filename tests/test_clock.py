"""The clock of a node: the store's time, steady, never backwards."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from horae.clock import ManualClock, StoreClock
from horae.connect import follow_store
from horae.store import Store as AnyStore

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


def test_the_answer_of_the_store_is_taken_to_be_from_the_middle_of_the_question() -> None:
    steady = Steady()
    clock = StoreClock(steady)
    clock.sync(NOON, asked_at=1000.0, answered_at=1000.4)
    steady.seconds = 1000.2
    assert close(clock.now(), NOON)


async def test_a_new_clock_goes_by_the_quickest_answer() -> None:
    steady = Steady()
    start = steady()

    class Store:
        """Its first answer is given at the end of a long round trip, the others in the middle of short ones."""

        trips = iter([(0.008, 0.0), (0.0002, 0.0002), (0.0003, 0.0003), (0.0002, 0.0004)])

        async def time(self) -> datetime:
            there, back = next(self.trips)
            steady.seconds += there
            answer = NOON + timedelta(seconds=steady() - start)
            steady.seconds += back
            return answer

    clock = StoreClock(steady)
    await follow_store(clock, cast(AnyStore, Store()))
    assert close(clock.now(), NOON + timedelta(seconds=steady() - start))


def test_a_small_error_is_mended_step_by_step_and_reported() -> None:
    steady = Steady()
    clock = synced(steady)
    behind = timedelta(milliseconds=400)
    clock.sync(NOON + behind, asked_at=steady(), answered_at=steady())
    assert close(NOON + clock.offset, NOON + behind)
    assert close(clock.now(), NOON + behind / 4)
    for _ in range(30):
        clock.sync(NOON + behind, asked_at=steady(), answered_at=steady())
    assert close(clock.now(), NOON + behind, within=1e-3)


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
