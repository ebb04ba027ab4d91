"""What a preview shows of a schedule, and what it warns of."""

import pytest

from horae.core.schedule.preview import Fire, preview, warnings
from tests.core.schedules import NOW, cron, read, upcoming, utc


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
