"""Times as people write them, in the time zone of their machine."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from horae.cli.arguments import schedule_of
from horae.cli.times import future, past
from horae.core.errors import InvalidSchedule, Malformed

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)  # 10:30 in Paris


@pytest.fixture(autouse=True)
def _paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-03-10T09:30:00Z"),
        ("10m", "2026-03-10T09:20:00Z"),
        ("2h30m", "2026-03-10T07:00:00Z"),
        ("1 hour ago", "2026-03-10T08:30:00Z"),
        ("3d", "2026-03-07T09:30:00Z"),
        ("1w", "2026-03-03T09:30:00Z"),
        ("today", "2026-03-09T23:00:00Z"),
        ("yesterday", "2026-03-08T23:00:00Z"),
        ("Yesterday 14:30", "2026-03-09T13:30:00Z"),
        ("9:15", "2026-03-10T08:15:00Z"),
        ("14:30", "2026-03-09T13:30:00Z"),  # the last one, because that of today is still to come
        ("2026-01-31", "2026-01-30T23:00:00Z"),
        ("2026-07-31", "2026-07-30T22:00:00Z"),  # in summer time
        ("2026-01-31 14:30", "2026-01-31T13:30:00Z"),
        ("2026-01-31T14:30:05", "2026-01-31T13:30:05Z"),
        ("2026-01-31T14:30:00Z", "2026-01-31T14:30:00Z"),
        ("2026-01-31t14:30:00-05:00", "2026-01-31T19:30:00Z"),
    ],
)
def test_a_time_that_has_passed_is_written_in_many_ways(text: str, meant: str) -> None:
    assert past(text, "--since", NOW) == meant


@pytest.mark.parametrize(
    "text", ["", "yesteday", "25:00", "2026-02-30", "10 parsecs", "in 10m", "14:30:99", "-1h", "9999999h"]
)
def test_what_is_no_time_is_refused_with_the_ways_to_write_one(text: str) -> None:
    with pytest.raises(Malformed, match=r"--since .* is not a time; write 10m, 2h30m, yesterday, 14:30, 2026-01-31"):
        past(text, "--since", NOW)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("in 10m", "2026-03-10T09:40:00Z"),
        ("in 2 hours", "2026-03-10T11:30:00Z"),
        ("tomorrow", "2026-03-10T23:00:00Z"),
        ("tomorrow 9:00", "2026-03-11T08:00:00Z"),
        ("14:30", "2026-03-10T13:30:00Z"),
        ("9:15", "2026-03-11T08:15:00Z"),  # the next one
        ("2027-01-31", "2027-01-30T23:00:00Z"),
        ("2027-01-31T09:00", "2027-01-31T08:00:00Z"),
    ],
)
def test_a_time_to_come_is_written_in_many_ways(text: str, meant: str) -> None:
    assert future(text, now=NOW) == meant


@pytest.mark.parametrize(
    "text", ["now", "every 5m", "@daily", "0 9 * * *", "5m", "2027-01-31T09:00:00Z", "whenever", "{}"]
)
def test_other_schedules_are_no_times(text: str) -> None:
    assert future(text, now=NOW) is None


def test_a_time_of_day_is_one_of_the_given_zone() -> None:
    assert future("14:30", ZoneInfo("America/New_York"), NOW) == "2026-03-10T18:30:00Z"
    assert schedule_of("2027-01-31 09:00", "Asia/Tokyo") == {
        "type": "at",
        "time": "2027-01-31T00:00:00Z",
        "timezone": "Asia/Tokyo",
    }
    assert schedule_of("2027-01-31 09:00") == "2027-01-31T08:00:00Z"
    assert schedule_of("0 9 * * *") == "0 9 * * *"
    with pytest.raises(InvalidSchedule, match="there is no time zone 'Europe/Pari'"):
        schedule_of("tomorrow", "Europe/Pari")
