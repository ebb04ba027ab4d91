"""Which slots a schedule has."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.errors import InvalidSchedule
from horae.core.schedule.evaluate import (
    SlotRange,
    count_between,
    is_recurring,
    jittered,
    last_before,
    next_after,
    next_slot,
    range_between,
    refuse_never_firing,
    skipped_in_gaps,
    slots_between,
    slots_until,
)
from horae.core.schedule.types import Calendar, Every
from tests.core.schedules import NOW, cron, read, upcoming, utc


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
    assert last_before(schedule, end, not_before=first) == (slots[-1] if slots else None)
    found = SlotRange(slots[0], slots[-1], len(slots)) if slots else None
    assert range_between(schedule, first, end) == found


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
