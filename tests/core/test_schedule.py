"""Schedules: how they are written, which slots they have, and what a user is told beforehand."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.errors import InvalidSchedule
from horae.core.schedule.evaluate import (
    count_between,
    is_recurring,
    jittered,
    last_before,
    next_after,
    next_slot,
    refuse_never_firing,
    skipped_in_gaps,
    slots_between,
    slots_until,
)
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.preview import Fire, preview, warnings
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, Now, Schedule

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read(value: Any, now: datetime = NOW) -> Schedule:
    return parse_schedule(value, now=now)


def cron(expression: str, **options: object) -> Schedule:
    return read({"type": "cron", "expression": expression, **options})


def upcoming(schedule: Schedule, count: int, after: datetime = NOW) -> list[str]:
    return [f"{fire.at:%Y-%m-%dT%H:%M:%S}" for fire in preview(schedule, after, count)]


# --- how they are written -------------------------------------------------------------------------------------------


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


# --- slots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({"hour": 9}, "0 0 9 * * * *"),
        ({"minute": 30}, "0 30 * * * * *"),
        ({"second": "*/10"}, "*/10 * * * * * *"),
        ({"day": 1}, "0 0 0 1 * * *"),
        ({"month": 3}, "0 0 0 1 3 * *"),
        ({"year": 2030}, "0 0 0 1 1 * 2030"),
        ({"weekdays": ["mon", "fri"]}, "0 0 0 * * +mon,fri *"),
        ({"weekdays": ["fri"], "day": 13}, "0 0 0 13 * +fri *"),
        ({"weekdays": ["mon"], "hour": [9, 17]}, "0 0 9,17 * * +mon *"),
        ({"year": 2030, "minute": "0-30/10"}, "0 0-30/10 * * * * 2030"),
    ],
)
def test_a_calendar_fills_finer_fields_with_their_lowest_value_and_coarser_ones_with_any(
    fields: dict[str, object], expression: str
) -> None:
    schedule = read({"type": "calendar", **fields})
    assert isinstance(schedule, Calendar)
    assert schedule.expression == expression


def test_a_calendar_with_day_and_weekdays_asks_for_both() -> None:
    friday_13th = read({"type": "calendar", "day": 13, "weekdays": ["fri"], "hour": 8})
    assert upcoming(friday_13th, 2) == ["2027-08-13T08:00:00", "2028-10-13T08:00:00"]


def test_an_interval_counts_from_its_anchor_and_never_drifts() -> None:
    schedule = read({"type": "every", "seconds": 7, "anchor": "2026-01-01T00:00:00Z"})
    assert next_after(schedule, utc("2026-01-01T00:00")) == utc("2026-01-01T00:00:07")
    assert next_after(schedule, utc("2026-01-01T00:00:13.999999")) == utc("2026-01-01T00:00:14")
    assert next_after(schedule, utc("2036-01-01T00:00")) == utc("2036-01-01T00:00:05")


def test_an_interval_begins_at_its_anchor_or_else_at_starts_at_or_else_one_interval_from_now() -> None:
    assert upcoming(read("every 10s"), 1) == ["2026-11-15T20:00:10"]
    future = {"type": "every", "seconds": 10, "anchor": "2026-11-15T21:00:00Z"}
    assert upcoming(read(future), 2) == ["2026-11-15T21:00:00", "2026-11-15T21:00:10"]
    starting = {"type": "every", "seconds": 10, "starts_at": "2026-11-15T21:00:05Z"}
    assert upcoming(read(starting), 2) == ["2026-11-15T21:00:05", "2026-11-15T21:00:15"]


def test_slots_lie_from_starts_at_on_and_before_ends_at() -> None:
    window = {"starts_at": "2026-11-16T09:00:00Z", "ends_at": "2026-11-18T09:00:00Z"}
    assert upcoming(cron("0 9 * * *", **window), 9) == ["2026-11-16T09:00:00", "2026-11-17T09:00:00"]


def test_a_one_shot_has_no_slots_but_the_instant_of_an_at() -> None:
    assert next_after(read("now"), NOW) is None
    later = read("2026-11-16T00:00:00Z")
    assert next_after(later, NOW) == utc("2026-11-16T00:00")
    assert next_after(later, utc("2026-11-16T00:00")) is None
    assert count_between(later, NOW, NOW + timedelta(days=2)) == 1
    assert not is_recurring(later)
    assert is_recurring(read("@daily"))


RECURRING = [
    "* * * * * *",
    "*/7 */3 * * *",
    "0 9 1 * *",
    "every 0.7s",
    "every 1h30m",
    {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin"},
    {"type": "cron", "expression": "0-30/10 1-3 * * *", "timezone": "Europe/Berlin", "dst": {"fold": "both"}},
    {"type": "cron", "expression": "@hourly", "starts_at": "2026-03-10T00:00:00Z", "ends_at": "2026-11-20T00:00:00Z"},
]


@pytest.mark.parametrize("value", RECURRING, ids=str)
@pytest.mark.parametrize("start", ["2026-03-28T22:10:00.5", "2026-10-24T22:10", "2026-11-15T20:00"])
@pytest.mark.parametrize("hours", [0, 0.001, 1, 9])
def test_counting_and_finding_the_newest_agree_with_walking(value: Any, start: str, hours: float) -> None:
    schedule = read(value, now=utc("2026-03-01T00:00:00.25"))
    first, end = utc(start), utc(start) + timedelta(hours=hours)
    slots = [slot.at for slot in slots_between(schedule, first, end)]
    assert all(first <= slot < end for slot in slots)
    assert all(earlier < later for earlier, later in pairwise(slots))
    assert count_between(schedule, first, end) == len(slots)
    assert count_between(schedule, first, end, cap=3) == min(len(slots), 3)
    assert last_before(schedule, end, not_before=first) == (slots[-1] if slots else None)
    assert list(slots_between(schedule, first, end, limit=2)) == list(slots_between(schedule, first, end))[:2]


def test_a_year_of_seconds_is_counted_without_walking_it() -> None:
    assert count_between(read("* * * * * *"), utc("2026-01-01T00:00"), utc("2027-01-01T00:00")) == 365 * 86_400


def test_skipped_slots_of_a_gap_respect_the_window_of_the_schedule() -> None:
    skip: dict[str, object] = {"timezone": "Europe/Berlin", "dst": {"gap": "skip"}}
    year = (utc("2026-01-01T00:00"), utc("2027-01-01T00:00"))
    assert skipped_in_gaps(cron("30 2 * * *", **skip), *year) == [utc("2026-03-29T01:00")]
    assert skipped_in_gaps(cron("30 2 * * *", **skip, ends_at="2026-03-29T01:00:00Z"), *year) == []
    assert skipped_in_gaps(cron("30 2 * * *", **skip, starts_at="2026-03-29T01:00:01Z"), *year) == []
    assert skipped_in_gaps(cron("30 2 * * *", timezone="Europe/Berlin"), *year) == []
    assert skipped_in_gaps(read("every 1m"), *year) == []


@given(st.integers(0, 10**6), st.integers(0, 120), st.text(max_size=10))
def test_jitter_is_stable_bounded_and_never_reaches_the_next_slot(minute: int, jitter: int, job_id: str) -> None:
    schedule = cron("* * * * *", jitter_seconds=jitter)
    slot = utc("2026-01-01T00:00") + timedelta(minutes=minute)
    due = jittered(schedule, job_id, slot)
    assert slot <= due <= slot + timedelta(seconds=jitter)
    assert due < slot + timedelta(minutes=1)
    assert due == jittered(schedule, job_id, slot)


def test_jitter_differs_between_jobs_and_is_the_same_on_every_machine() -> None:
    schedule = cron("@hourly", jitter_seconds=600)
    dues = {jittered(schedule, f"job_{n}", NOW) for n in range(100)}
    assert len(dues) == 100
    assert jittered(schedule, "job_1", NOW) == utc("2026-11-15T20:00") + timedelta(microseconds=416205957)
    assert jittered(read("@hourly"), "job_1", NOW) == NOW


# --- what a user is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "pointer", "complaint"),
    [
        ("0 0 30 2 *", "/schedule", "no future date matches"),
        ("0 0 0 1 1 ? 2020", "/schedule", "no future date matches"),
        ({"type": "calendar", "year": 2020}, "/schedule", "no future date matches"),
        ({"type": "every", "seconds": 5, "ends_at": "2026-01-01T00:00:00Z"}, "/schedule/ends_at", "has passed"),
        (
            {"type": "cron", "expression": "@yearly", "ends_at": "2026-12-01T00:00:00Z"},
            "/schedule/ends_at",
            "its first slot would be 2027-01-01T00:00:00Z",
        ),
        (
            {"type": "cron", "expression": "0 0 30 2 *", "ends_at": "2036-12-01T00:00:00Z"},
            "/schedule",
            "no future date matches",
        ),
        (
            {
                "type": "cron",
                "expression": "30 2 * 3 sunL",
                "timezone": "Europe/Berlin",
                "dst": {"gap": "skip"},
            },
            "/schedule",
            "no future date matches",
        ),
    ],
)
def test_a_schedule_that_can_never_fire_is_refused(value: Any, pointer: str, complaint: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        refuse_never_firing(read(value), NOW)
    assert complaint in str(caught.value)
    assert caught.value.faults[0].pointer == pointer


@pytest.mark.parametrize("value", ["now", "2020-01-01T00:00:00Z", "@yearly", "every 5m", "0 0 29 2 */7"])
def test_a_schedule_that_will_fire_or_is_only_late_is_accepted(value: str) -> None:
    refuse_never_firing(read(value), NOW)


def test_a_preview_tells_what_clock_changes_do_in_words() -> None:
    nightly = cron("30 2 * * *", timezone="Europe/Berlin")
    assert preview(nightly, utc("2026-03-28T12:00"), 2) == [
        Fire(at=utc("2026-03-29T01:00"), note="02:30 does not exist on 2026-03-29 in Europe/Berlin; runs at 03:00"),
        Fire(at=utc("2026-03-30T00:30")),
    ]
    assert [fire.note for fire in preview(nightly, utc("2026-10-24T12:00"), 1)] == [
        "02:30 happens twice on 2026-10-25 in Europe/Berlin; runs the first time only"
    ]
    hourly = cron("30 * * * *", timezone="Europe/Berlin")
    assert [fire.note for fire in preview(hourly, utc("2026-10-25T00:00"), 3)] == [
        "02:30 happens twice on 2026-10-25 in Europe/Berlin; this is the first",
        "02:30 happens twice on 2026-10-25 in Europe/Berlin; this is the second",
        None,
    ]


def test_a_preview_ends_with_the_schedule() -> None:
    assert upcoming(cron("0 0 0 1 1 ? 2030"), 5) == ["2030-01-01T00:00:00"]
    assert preview(read("now"), NOW, 5) == []
    assert upcoming(read("2026-12-01T00:00:00Z"), 5) == ["2026-12-01T00:00:00"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("now", []),
        ("every 5m", []),
        ("0 9 * * mon-fri", []),
        ("0 0 31 1 *", []),
        ("0 0 13 * +fri", []),
        ("0 0 13 * fri", ["fires when either matches"]),
        ("* * * * * *", ["more often than once a minute"]),
        ("every 1s", ["more often than once a minute"]),
        ("0 0 31 * *", ["months without a day 31"]),
        ("*/90 * * * *", ["the step of */90 is larger than the minute field"]),
    ],
)
def test_what_may_surprise_a_user_is_said(value: str, expected: list[str]) -> None:
    found = warnings(read(value))
    assert len(found) == len(expected)
    assert all(text in warning for text, warning in zip(expected, found, strict=True))


def test_a_fixed_time_that_meets_a_clock_change_within_a_year_is_said() -> None:
    assert warnings(cron("30 2 * * *", timezone="Europe/Berlin"), NOW) == [
        "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00",
        "02:30 happens twice on 2027-10-31 in Europe/Berlin; runs the first time only",
    ]
    assert warnings(cron("30 2 * * *", timezone="Europe/Berlin", dst={"gap": "skip"}), NOW)[-1] == (
        "the slot before 03:00 on 2027-03-28 in Europe/Berlin does not exist; it is skipped"
    )
    assert warnings(cron("30 4 * * *", timezone="Europe/Berlin"), NOW) == []
    assert warnings(cron("30 * * * *", timezone="Europe/Berlin"), NOW) == []


def test_a_slot_of_a_one_shot_or_an_interval_carries_no_note() -> None:
    slot = next_slot(read("every 1h"), NOW)
    assert slot is not None
    assert slot.note is None


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "every", "seconds": 7, "anchor": "2026-01-01T00:00:03Z"},
        {"type": "every", "seconds": 1, "anchor": "2026-01-01T00:00:00Z", "ends_at": "2026-01-01T00:00:20Z"},
        {"type": "every", "seconds": 86400, "anchor": "2026-01-01T00:00:10Z"},
        {"type": "cron", "expression": "*/5 * * * * *", "timezone": "UTC"},
    ],
)
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_slots_until_a_moment_are_those_that_follow_one_another(schedule: dict[str, Any], limit: int) -> None:
    known = read(schedule)
    since, until = utc("2026-01-01T00:00:10"), utc("2026-01-01T00:00:45")
    stepped, slot = [], next_after(known, since - timedelta(microseconds=1))
    while slot is not None and slot <= until and len(stepped) < limit:
        stepped.append(slot)
        slot = next_after(known, slot)
    assert slots_until(known, since, until, limit) == (stepped, slot)


def test_no_slot_follows_the_last_one_that_the_calendar_has_room_for() -> None:
    anchor = utc("2026-01-01T00:00")
    century = Every(interval=timedelta(days=365 * 8_000), anchor=anchor)
    assert slots_until(century, anchor, anchor, 5) == ([anchor], None)
