"""The heartbeat's own thread: it starts, it stops, and its death is noticed."""

import asyncio
from datetime import UTC, datetime
from typing import cast

import pytest

from horae.clock import StoreClock
from horae.core.errors import Unavailable
from horae.services.membership import Heart, Timing
from horae.services.pulse import Pulse
from horae.store import Store


class StoreDouble:
    """Knows how to be closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


class HeartDouble:
    """Joins, and then beats until it is broken."""

    def __init__(self, *, joins: bool = True) -> None:
        self.joins, self.broken = joins, False

    async def join(self) -> None:
        if not self.joins:
            raise Unavailable("the store did not answer")

    async def tick(self) -> datetime | None:
        if self.broken:
            raise ZeroDivisionError
        return datetime(1970, 1, 1, tzinfo=UTC)  # again at once


def pulse(heart: HeartDouble, store: StoreDouble) -> Pulse:
    async def open_store() -> Store:
        return cast(Store, store)

    return Pulse(open_store, lambda _: cast(Heart, heart), StoreClock(), Timing())


async def test_it_beats_until_it_is_stopped_and_lets_its_store_go() -> None:
    store, heart = StoreDouble(), HeartDouble()
    beating = pulse(heart, store)
    assert await beating.start() is cast(Heart, heart)
    async with asyncio.timeout(5):
        await beating.stop()
    assert store.closed


async def test_a_node_that_cannot_join_does_not_start() -> None:
    with pytest.raises(Unavailable):
        await pulse(HeartDouble(joins=False), StoreDouble()).start()


async def test_a_heart_that_stops_for_no_known_reason_is_noticed() -> None:
    heart = HeartDouble()
    beating = pulse(heart, StoreDouble())
    await beating.start()
    heart.broken = True
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5):
            await beating.failed()
    await beating.stop()
