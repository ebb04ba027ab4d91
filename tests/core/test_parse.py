"""Parsing schedules from strings and objects, and writing them back."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.errors import InvalidSchedule
from horae.core.schedule.evaluate import is_recurring
from horae.core.schedule.parse import recurs, schedule_to_wire
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, Now, Schedule
from tests.core.schedules import NOW, read, utc


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("now", Now()),
        ({"type": "now"}, Now()),
        ("2027-01-01T00:00:00Z", At(time=utc("2027-01-01T00:00"))),
        ("2027-01-01t02:00:00.123456789+02:00", At(time=utc("2027-01-01T00:00:00.123456"))),
        ("2026-12-31 19:00:00-05:00", At(time=utc("2027-01-01T00:00"))),
        ({"type": "at", "time": "2027-01-01T00:00:00Z"}, At(time=utc("2027-01-01T00:00"))),
        ("@daily", CronSchedule(expression="@daily")),
        (" 0 9 * * mon-fri ", CronSchedule(expression="0 9 * * mon-fri")),
        ("every 5m", Every(interval=timedelta(minutes=5), anchor=NOW)),
        ("every 90s", Every(interval=timedelta(seconds=90), anchor=NOW)),
        ("every 1h30m", Every(interval=timedelta(minutes=90), anchor=NOW)),
        ("every 1h 30m", Every(interval=timedelta(minutes=90), anchor=NOW)),
        ("every 500ms", Every(interval=timedelta(milliseconds=500), anchor=NOW)),
        ("every 1.5h", Every(interval=timedelta(minutes=90), anchor=NOW)),
        ("every 2d", Every(interval=timedelta(days=2), anchor=NOW)),
        ("every 1w", Every(interval=timedelta(weeks=1), anchor=NOW)),
        ("every 10 minutes", Every(interval=timedelta(minutes=10), anchor=NOW)),
        ("every minute", Every(interval=timedelta(minutes=1), anchor=NOW)),
        ("every hour", Every(interval=timedelta(hours=1), anchor=NOW)),
        ("every day", Every(interval=timedelta(days=1), anchor=NOW)),
        ({"type": "every", "seconds": 0.5}, Every(interval=timedelta(seconds=0.5), anchor=NOW)),
        (
            {"type": "every", "seconds": 60, "anchor": "2026-01-01T00:00:00Z", "timezone": None},
            Every(interval=timedelta(minutes=1), anchor=utc("2026-01-01T00:00")),
        ),
        ({"type": "calendar", "hour": 9, "weekdays": ["fri", "mon"]}, Calendar(hour=9, weekdays=("mon", "fri"))),
    ],
)
def test_a_schedule_is_read_from_any_of_its_forms(value: object, expected: Schedule) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    ("value", "again"),
    [
        ("now", False),
        (" now\t", False),
        ("2027-01-01T00:00:00Z", False),
        (" 2026-12-31 19:00:00-05:00", False),
        ({"type": "now"}, False),
        ({"type": "at", "time": "2027-01-01T00:00:00Z"}, False),
        ("@daily", True),
        ("0 9 * * mon-fri", True),
        ("every 5m", True),
        ({"type": "every", "seconds": 5}, True),
        ({"type": "cron", "expression": "@daily"}, True),
        ({"type": "calendar", "hour": 9}, True),
    ],
)
def test_the_form_of_a_schedule_says_whether_it_recurs(value: str | dict[str, object], again: bool) -> None:
    assert recurs(value) == is_recurring(read(value)) == again


@pytest.mark.parametrize(
    ("value", "pointer", "complaint"),
    [
        ("", "/schedule", "a schedule is"),
        ("tomorrow", "/schedule", "not 'tomorrow'"),
        ("NOW", "/schedule", "not 'NOW'"),
        (5, "/schedule", "not a number"),
        (None, "/schedule", "not null"),
        ([], "/schedule", "not a list"),
        ("2027-01-01T00:00:00", "/schedule", "needs an offset"),
        ("2027-01-01", "/schedule", "is not a timestamp"),
        ("2027-02-30T00:00:00Z", "/schedule", "is not a valid time"),
        ("2027-01-01T00:00:60Z", "/schedule", "is not a valid time"),
        ("2027-01-01T00:00:00+24:00", "/schedule", "is not a valid time"),
        ("1969-12-31T23:59:59Z", "/schedule", "not between 1970 and 2999"),
        ("9999-12-31T23:59:59-01:00", "/schedule", "is not a valid time"),
        ("٢٠٢٧-01-01T00:00:00Z", "/schedule", "is not allowed in a cron expression"),
        ("every", "/schedule", "is not an interval"),
        ("every 5", "/schedule", "is not an interval"),
        ("every 5 fortnights", "/schedule", "is not an interval"),
        ("every m", "/schedule", "is not an interval"),
        ("every 5m or so", "/schedule", "is not an interval"),
        ("every 50ms", "/schedule", "from 0.1 seconds"),
        ("every 999999999999w", "/schedule", "to 3653 days"),
        ("every 99999w", "/schedule", "to 3653 days"),
        ("0 0 * * L", "/schedule", "L needs a weekday"),
        ("*" * 2000, "/schedule", "at most 1000 characters"),
        ({}, "/schedule/type", "one of now, at, every, cron, calendar"),
        ({"type": "crom"}, "/schedule/type", "did you mean cron?"),
        ({"type": ["cron"]}, "/schedule/type", "one of now"),
        ({"type": "cron"}, "/schedule/expression", "needs expression"),
        ({"type": "cron", "expression": None}, "/schedule/expression", "needs expression"),
        ({"type": "cron", "expression": 5}, "/schedule/expression", "is a string, not a number"),
        ({"type": "cron", "expression": "61 * * * *"}, "/schedule/expression", "column 1"),
        ({"type": "cron", "expresion": "@daily"}, "/schedule/expresion", "did you mean expression?"),
        ({"type": "cron", "expression": "@daily", "a/b~": 1}, "/schedule/a~1b~0", "has no 'a/b~'"),
        ({"type": "now", "starts_at": "2027-01-01T00:00:00Z"}, "/schedule/starts_at", "has no 'starts_at'"),
        ({"type": "at"}, "/schedule/time", "needs time"),
        ({"type": "at", "time": "noon"}, "/schedule/time", "is not a timestamp"),
        ({"type": "at", "time": 5}, "/schedule/time", "is a string"),
        ({"type": "every"}, "/schedule/seconds", "needs seconds"),
        ({"type": "every", "seconds": "60"}, "/schedule/seconds", "not a string"),
        ({"type": "every", "seconds": True}, "/schedule/seconds", "not true or false"),
        ({"type": "every", "seconds": 0}, "/schedule/seconds", "from 0.1 seconds"),
        ({"type": "every", "seconds": -5}, "/schedule/seconds", "from 0.1 seconds"),
        ({"type": "every", "seconds": float("nan")}, "/schedule/seconds", "a number of seconds"),
        ({"type": "every", "seconds": 1e300}, "/schedule/seconds", "too large"),
        ({"type": "every", "seconds": 10**400}, "/schedule/seconds", "too large"),
        ({"type": "every", "seconds": 60, "jitter_seconds": -1}, "/schedule/jitter_seconds", "from 0 to 86400"),
        ({"type": "every", "seconds": 60, "timezone": "berlin"}, "/schedule/timezone", "did you mean Europe/Berlin?"),
        ({"type": "every", "seconds": 60, "timezone": "Europe/Belrin"}, "/schedule/timezone", "mean Europe/Berlin?"),
        ({"type": "every", "seconds": 60, "timezone": "../../etc/passwd"}, "/schedule/timezone", "no time zone"),
        ({"type": "every", "seconds": 60, "timezone": "localtime"}, "/schedule/timezone", "no time zone"),
        ({"type": "every", "seconds": 60, "timezone": "Zürich\0"}, "/schedule/timezone", "no time zone"),
        ({"type": "every", "seconds": 60, "timezone": ""}, "/schedule/timezone", "no time zone"),
        ({"type": "every", "seconds": 60, "timezone": 2}, "/schedule/timezone", "is a string"),
        ({"type": "every", "seconds": 60, "dst": "skip"}, "/schedule/dst", "an object with gap and fold"),
        ({"type": "every", "seconds": 60, "dst": {"gapp": "skip"}}, "/schedule/dst/gapp", "did you mean gap?"),
        ({"type": "every", "seconds": 60, "dst": {"gap": "first"}}, "/schedule/dst/gap", "one of run_after, skip"),
        ({"type": "every", "seconds": 60, "dst": {"fold": 1}}, "/schedule/dst/fold", "one of first, second, both"),
        (
            {
                "type": "cron",
                "expression": "@daily",
                "starts_at": "2027-01-01T00:00:00Z",
                "ends_at": "2027-01-01T00:00:00Z",
            },
            "/schedule/ends_at",
            "must be after starts_at",
        ),
        ({"type": "calendar"}, "/schedule", "at least one of"),
        ({"type": "calendar", "hour": 24}, "/schedule/hour", "24 is not between 0 and 23"),
        ({"type": "calendar", "hour": 10**5000}, "/schedule/hour", "a number, a list of numbers"),
        ({"type": "calendar", "hour": -1}, "/schedule/hour", "the hour field"),
        ({"type": "calendar", "hour": []}, "/schedule/hour", "a number, a list of numbers"),
        ({"type": "calendar", "hour": [True]}, "/schedule/hour", "a number, a list of numbers"),
        ({"type": "calendar", "hour": 9.5}, "/schedule/hour", "a number, a list of numbers"),
        ({"type": "calendar", "hour": "9 * * * *"}, "/schedule/hour", "the hour field"),
        ({"type": "calendar", "day": ""}, "/schedule/day", "empty"),
        ({"type": "calendar", "year": 1969}, "/schedule/year", "1969 is not between"),
        ({"type": "calendar", "weekdays": []}, "/schedule/weekdays", "a list of mon"),
        ({"type": "calendar", "weekdays": "mon"}, "/schedule/weekdays", "a list of mon"),
        ({"type": "calendar", "weekdays": ["mon", "tuesday"]}, "/schedule/weekdays/1", "not 'tuesday'"),
        ({"type": "calendar", "weekdays": [{}]}, "/schedule/weekdays/0", "a weekday is one of"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_place_and_the_reason(value: object, pointer: str, complaint: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        read(value)
    assert complaint in str(caught.value)
    assert [fault.pointer for fault in caught.value.faults] == [pointer]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
OF_TYPES = ["type", "time", "seconds", "anchor", "expression", "year", "month", "day", "hour", "minute", "weekdays"]
KEYS = st.sampled_from([*OF_TYPES, "second", "timezone", "starts_at", "ends_at", "jitter_seconds", "dst"])
KINDS = st.sampled_from(["now", "at", "every", "cron", "calendar"])


@given(st.one_of(JSON, st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(KEYS, JSON))))
def test_no_value_is_refused_in_any_other_way(value: object) -> None:
    with suppress(InvalidSchedule):
        read(value)


MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2900, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "timezone": st.sampled_from(["UTC", "Europe/Paris", "Pacific/Apia"]),
        "starts_at": MOMENTS.map(lambda moment: moment.isoformat()),
        "jitter_seconds": st.integers(0, 3600) | st.floats(0, 60),
        "dst": st.fixed_dictionaries(
            {},
            optional={
                "gap": st.sampled_from(["run_after", "skip"]),
                "fold": st.sampled_from(["first", "second", "both"]),
            },
        ),
    },
)
BODIES = st.one_of(
    st.fixed_dictionaries({"type": st.just("at"), "time": MOMENTS.map(lambda moment: moment.isoformat())}),
    st.builds(
        lambda seconds, options: {"type": "every", "seconds": seconds, **options},
        st.integers(1, 10**6) | st.floats(0.1, 1000),
        OPTIONS,
    ),
    st.builds(
        lambda text, options: {"type": "cron", "expression": text, **options},
        st.sampled_from(["@daily", "0 9 * * mon-fri", "*/5 * * * * *", "0 0 0 1 1 ? 2030"]),
        OPTIONS,
    ),
    st.builds(
        lambda fields, options: {"type": "calendar", **fields, **options},
        st.fixed_dictionaries(
            {"hour": st.integers(0, 23) | st.lists(st.integers(0, 23), min_size=1, max_size=4) | st.just("*/5")},
            optional={
                "day": st.integers(1, 31) | st.just("L"),
                "weekdays": st.lists(st.sampled_from(["mon", "tue", "sun"]), min_size=1, unique=True),
                "year": st.integers(1970, 2199),
            },
        ),
        OPTIONS,
    ),
)


@given(BODIES)
def test_a_schedule_survives_being_stored(body: dict[str, object]) -> None:
    schedule = read(body)
    assert read(schedule_to_wire(schedule), now=NOW + timedelta(days=3)) == schedule


def test_the_stored_form_leaves_out_what_is_default_and_keeps_the_types_of_numbers() -> None:
    assert schedule_to_wire(read("0 9 * * *")) == {"type": "cron", "expression": "0 9 * * *"}
    assert schedule_to_wire(read("every 90s")) == {"type": "every", "seconds": 90, "anchor": "2026-11-15T20:00:00Z"}
    calendar = {"type": "calendar", "hour": [9, 17], "day": "L", "minute": 30, "weekdays": ["mon"]}
    assert schedule_to_wire(read(calendar)) == calendar
