"""Schedules in plain English: pleasant for the common ones, true for all."""

from datetime import UTC, datetime
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from horae.core.schedule.cron import parse_cron
from horae.core.schedule.describe import describe, describe_cron
from horae.core.schedule.parse import parse_schedule
from tests.core.cron_cases import expression_near

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("now", "once, at once"),
        ("2027-01-01T08:30:00Z", "once, at 2027-01-01 08:30 (UTC)"),
        ("every 5m", "every 5 minutes"),
        ("every 1h", "every hour"),
        ("every 1h30m", "every 1 hour 30 minutes"),
        ("every 500ms", "every 0.5 seconds"),
        ("every 1d", "every day"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("15 * * * * *", "at second 15 of every minute"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("@hourly", "every hour"),
        ("0 */6 * * *", "every 6 hours (UTC)"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00 (UTC)"),
        ("@daily", "at 00:00 every day (UTC)"),
        ("0 9,17 * * *", "at 09:00 and 17:00 every day (UTC)"),
        ("30 0 9 * * *", "at 09:00:30 every day (UTC)"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday (UTC)"),
        ("0 9 * * 0,6", "at 09:00 on Saturday and Sunday (UTC)"),
        ("*/15 9-17 * * 1-5", "every 15 minutes of hours 9 through 17 on Monday through Friday (UTC)"),
        ("@monthly", "at 00:00 on day 1 of the month (UTC)"),
        ("@yearly", "at 00:00 on 1 January (UTC)"),
        ("0 0 0 1 1 ? 2030", "at 00:00 on 1 January 2030 (UTC)"),
        ("0 0 L * *", "at 00:00 on the last day of the month (UTC)"),
        ("0 0 LW * *", "at 00:00 on the last workday of the month (UTC)"),
        ("0 0 15W * *", "at 00:00 on the workday nearest to day 15 of the month (UTC)"),
        ("0 0 L-3 * *", "at 00:00 on 3 days before the last day of the month (UTC)"),
        ("0 0 * * 2#2", "at 00:00 on the second Tuesday of the month (UTC)"),
        ("0 0 * * FRIL", "at 00:00 on the last Friday of the month (UTC)"),
        ("0 0 13 * fri", "at 00:00 on day 13 of the month or on Friday (UTC)"),
        ("0 0 13 * +fri", "at 00:00 on day 13 of the month if that is Friday (UTC)"),
        ("0 0 1-31 * 1", "at 00:00 every day (UTC)"),
        ("0 12 * 6-8 *", "at 12:00 every day in June through August (UTC)"),
        ("1,2,7 3-5 * 2,3 *", "at minutes 1, 2 and 7 of hours 3 through 5 in February and March (UTC)"),
        (
            {"type": "cron", "expression": "0 9 * * mon-fri", "timezone": "Europe/Paris"},
            "at 09:00 on Monday through Friday (Europe/Paris)",
        ),
        (
            {
                "type": "calendar",
                "hour": 9,
                "timezone": "Europe/Paris",
                "starts_at": "2027-01-01T00:00:00Z",
                "ends_at": "2027-07-01T00:00:00Z",
                "jitter_seconds": 90,
            },
            (
                "at 09:00 every day (Europe/Paris), from 2027-01-01 01:00 (Europe/Paris), "
                "before 2027-07-01 02:00 (Europe/Paris), each up to 1 minute 30 seconds later"
            ),
        ),
    ],
)
def test_a_schedule_reads_as_a_person_would_say_it(value: Any, expected: str) -> None:
    assert describe(parse_schedule(value, now=NOW)) == expected


def test_expressions_that_fire_at_different_times_are_never_described_alike() -> None:
    rng = Random(3)
    meaning: dict[str, tuple[object, ...]] = {}
    for _ in range(6_000):
        cron = parse_cron(expression_near(rng, NOW, ZoneInfo("UTC")))
        fields, wall = cron.fields, cron.wall
        meant = (wall.seconds, wall.minutes, wall.hours, fields.month.values, wall.years, wall.days)
        words = describe_cron(fields)
        assert meaning.setdefault(words, meant) == meant, (cron.expression, words)
