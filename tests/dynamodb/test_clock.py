"""The clock of a DynamoDB store: the machine's own, until something shows that it is wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.errors import Unavailable
from horae.stores.dynamodb import times
from horae.stores.dynamodb.clock import HostClock

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HostClock:
    monkeypatch.setattr(times, "wall", lambda: NOW)
    return HostClock()


def seen(clock: HostClock, off: timedelta) -> None:
    """An answer of DynamoDB, whose clock is off by so much, in whole seconds; it took 100 ms."""
    clock.seen((NOW + off).replace(microsecond=0), 10.0, 10.1)


@pytest.mark.parametrize("seconds", [0, 1, -1, 3, -3])
def test_a_clock_that_may_be_right_is_used(clock: HostClock, seconds: int) -> None:
    seen(clock, timedelta(seconds=seconds))
    assert clock.now() == NOW


@pytest.mark.parametrize("seconds", [7, -7, 3600])
def test_a_clock_that_is_certainly_wrong_tells_no_time_until_it_is_set(clock: HostClock, seconds: int) -> None:
    seen(clock, timedelta(seconds=seconds))
    with pytest.raises(Unavailable, match="NTP"):
        clock.now()
    seen(clock, timedelta())
    assert clock.now() == NOW
