"""The cron dialect: what parses, when it fires, and what clock changes do to it."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from timeit import repeat
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.errors import InvalidSchedule
from horae.core.schedule import zones
from horae.core.schedule.cron import Cron, parse_cron
from horae.core.schedule.dst import DEFAULT_DST, Dst, DstNote, DstNoteKind, Fold, Gap
from horae.core.schedule.types import NotedSlot
from tests.core.cron_cases import CHANGES, change_at, expression_near

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
CAIRO = ZoneInfo("Africa/Cairo")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
TROLL = ZoneInfo("Antarctica/Troll")
APIA = ZoneInfo("Pacific/Apia")
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
DUBLIN = ZoneInfo("Europe/Dublin")
NEW_YEAR = "2026-01-01T00:00"

SKIP = Dst(gap=Gap.SKIP)
RUN_AFTER = Dst(gap=Gap.RUN_AFTER)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(
    expression: str, after: str = NEW_YEAR, count: int = 3, zone: ZoneInfo = UTC_ZONE, dst: Dst = DEFAULT_DST
) -> list[str]:
    """The next fire times in UTC, as `2026-01-01T09:00`, with seconds where there are any."""
    found: list[str] = []
    at = parse_cron(expression).next(utc(after), zone, dst)
    while at is not None and len(found) < count:
        found.append(at.isoformat().removesuffix("+00:00").removesuffix(":00"))
        at = parse_cron(expression).next(at, zone, dst)
    return found


# --- the traps that other libraries fall into (anchors/reliability.md, section 4.2) ---------------------------------

TRAPS = [
    ("1", "0 9-9 * * *", ["2026-01-01T09:00", "2026-01-02T09:00"]),
    ("1b", "0 3-3 * * *", ["2026-01-01T03:00", "2026-01-02T03:00"]),
    ("2", "55-55/2 * * * *", ["2026-01-01T00:55", "2026-01-01T01:55"]),
    ("3", "0 0 */2 * 1", ["2026-01-05T00:00", "2026-01-19T00:00"]),
    ("4", "0 0 29 2 */7", ["2032-02-29T00:00", "2060-02-29T00:00"]),
    ("5", "0 0 13 * 5", ["2026-01-02T00:00", "2026-01-09T00:00", "2026-01-13T00:00"]),
    ("6", "0 0 1-31 * 1", ["2026-01-02T00:00", "2026-01-03T00:00"]),
    ("8", "15 * * * * *", ["2026-01-01T00:00:15", "2026-01-01T00:01:15"]),
    ("9", "0 0 12 * * 1", ["2026-01-05T12:00", "2026-01-12T12:00"]),
    ("10", "0 0 0 1 1 ? 2030", ["2030-01-01T00:00"]),
    ("11", "0 0 1 * 1#1", ["2026-01-05T00:00", "2026-02-01T00:00", "2026-02-02T00:00"]),
    ("12", "0 0 * * 1,1#2", ["2026-01-05T00:00", "2026-01-12T00:00"]),
    ("13", "0 0 * * 5L", ["2026-01-30T00:00", "2026-02-27T00:00"]),
    ("14", "0 0 * * FRIL", ["2026-01-30T00:00", "2026-02-27T00:00"]),
    ("16a", "0 0 LW * *", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-31T00:00"]),
    ("16b", "0 0 15W * *", ["2026-01-15T00:00", "2026-02-16T00:00"]),
    ("16c", "0 0 L-3 * *", ["2026-01-28T00:00", "2026-02-25T00:00"]),
    ("18", "@daily", ["2026-01-02T00:00", "2026-01-03T00:00"]),
    ("22", "\t 0 0 * * * ", ["2026-01-02T00:00"]),
]


@pytest.mark.parametrize(("expression", "expected"), [row[1:] for row in TRAPS], ids=[row[0] for row in TRAPS])
def test_a_trap_of_other_libraries_is_avoided(expression: str, expected: list[str]) -> None:
    assert fires(expression, count=len(expected)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        *("0 22-2 * * *", "0 0 * * FRI-MON", "30-10 * * * *"),  # 7
        *("0 0 * * L5", "0 0 * * L"),  # 13, 15
        *("@Daily", "@reboot", "@DAILY"),  # 18
        *("٣ * * * *", "* * * * *\0", "R R * * *", "H H * * *", "0 0 * January *"),  # 19 to 22
    ],
)
def test_what_other_libraries_wrongly_accept_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_cron(expression)


def test_an_impossible_date_parses_but_never_fires() -> None:  # trap 17: job creation refuses it
    assert fires("0 0 30 2 *") == []


def test_leap_days_are_found_across_a_century_without_one_and_far_in_the_future() -> None:  # trap 23
    assert fires("0 0 29 2 *", "2096-03-01T00:00", 1) == ["2104-02-29T00:00"]
    assert fires("0 0 29 2 */7", "2088-03-01T00:00", 1) == ["2128-02-29T00:00"]
    assert fires("0 9 * * *", "3000-01-01T00:00", 1) == ["3000-01-01T09:00"]


def test_a_fixed_time_runs_once_in_a_repeated_hour() -> None:  # trap 24
    assert fires("30 2 * * *", "2026-10-24T12:00", 2, BERLIN) == ["2026-10-25T00:30", "2026-10-26T01:30"]


def test_asked_from_the_second_pass_a_fixed_time_is_that_of_the_next_day() -> None:  # trap 25
    assert fires("30 2 * * *", "2026-10-25T01:15", 1, BERLIN) == ["2026-10-26T01:30"]


def test_a_wildcard_has_no_slots_in_a_gap() -> None:  # traps 26, 27
    assert fires("*/15 2 * * *", "2026-03-28T12:00", 1, BERLIN) == ["2026-03-30T00:00"]
    assert fires("30 */2 * * *", "2026-03-28T23:30", 1, BERLIN) == ["2026-03-29T02:30"]


def test_six_fields_follow_the_same_clock_rules_as_five() -> None:  # trap 28
    assert fires("0 30 2 * * *", "2026-03-28T12:00", 2, BERLIN) == ["2026-03-29T01:00", "2026-03-30T00:30"]


def test_a_midnight_that_does_not_exist_has_no_slots_for_a_wildcard() -> None:  # trap 29
    assert fires("* 0 * * 5", "2026-04-23T12:00", 1, CAIRO) == ["2026-04-30T21:00"]


def test_half_hour_shifts_lose_and_repeat_nothing() -> None:  # trap 30
    assert fires("* 23 * * 0", "2026-10-04T00:00", 2, LORD_HOWE) == ["2026-10-04T12:00", "2026-10-04T12:01"]
    assert fires("29 * * * *", "2026-10-03T14:30", 2, LORD_HOWE) == ["2026-10-03T14:59", "2026-10-03T16:29"]


# --- the dialect ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "must", "must_not"),
    [
        ("15 10 * * *", ["2025-03-10T10:15:00"], ["2025-03-10T10:14:00", "2025-03-10T10:15:30"]),
        ("30 8 * jan Mon", ["2025-01-06T08:30"], ["2025-02-03T08:30"]),
        (
            "5-59/15 9 * * *",
            ["2025-03-10T09:05", "2025-03-10T09:20", "2025-03-10T09:35", "2025-03-10T09:50"],
            ["2025-03-10T09:15"],
        ),
        ("0 12 1 * MON", ["2025-10-01T12:00", "2025-10-06T12:00", "2025-09-08T12:00"], ["2025-10-07T12:00"]),
        ("0 12 * * MON", ["2025-10-06T12:00"], ["2025-10-07T12:00"]),
        ("0 12 1-31 * MON", ["2025-10-06T12:00", "2025-10-07T12:00"], ["2025-10-08T11:00"]),
        ("@yearly", ["2026-01-01T00:00"], ["2026-01-02T00:00"]),
        ("@annually", ["2026-01-01T00:00"], ["2026-02-01T00:00"]),
        ("@monthly", ["2026-02-01T00:00"], ["2026-02-02T00:00"]),
        ("@weekly", ["2025-10-05T00:00"], ["2025-10-06T00:00"]),
        ("@daily", ["2025-10-07T00:00"], ["2025-10-07T00:01"]),
        ("@midnight", ["2025-10-07T00:00"], ["2025-10-07T00:01"]),
        ("@hourly", ["2025-10-07T10:00"], ["2025-10-07T10:01"]),
        ("30 15 10 * * *", ["2025-03-10T10:15:30"], ["2025-03-10T10:15:29"]),
        ("0 15 10 * * * 2025", ["2025-03-10T10:15"], ["2026-03-10T10:15"]),
        ("0 0 0 1 1 * 1970-2199/2", ["2026-01-01T00:00"], ["2025-01-01T00:00"]),
        ("0 0 L * *", ["2025-02-28T00:00"], ["2025-02-27T00:00"]),
        ("0 0 * * FRI#L", ["2025-02-28T00:00"], ["2025-02-21T00:00"]),
        ("0 0 * * TUE#3", ["2025-06-17T00:00"], ["2025-06-10T00:00"]),
        ("0 12 15W * *", ["2025-06-16T12:00"], ["2025-06-15T12:00"]),
        ("0 12 1W * *", ["2025-02-03T12:00"], ["2025-02-01T12:00"]),
        ("0 12 1 * +MON", ["2025-09-01T12:00"], ["2025-09-08T12:00", "2025-10-01T12:00"]),
    ],
)
def test_the_vectors_of_the_open_cron_pattern_specification_hold(
    pattern: str, must: list[str], must_not: list[str]
) -> None:
    def fires_at(text: str) -> bool:
        at = utc(text)
        return parse_cron(pattern).next(at - timedelta(seconds=1), UTC_ZONE) == at

    assert all(fires_at(text) for text in must)
    assert not any(fires_at(text) for text in must_not)


@pytest.mark.parametrize(
    "pattern",
    ["60 0 * * *", "0 0 10-5 * *", "0 0 /30 * *", "@daily 0 0 * * *", "0 12 1-15W * *", "0 12 +1 * MON", "? 12 * * *"],
)
def test_what_the_specification_says_to_refuse_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_cron(pattern)


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 l * fri#l", "0 0 L * 5L"),
        ("0 0 * * mon-fri/2", "0 0 * * 1,3,5"),
        ("0 0 * * 1/2", "0 0 * * 1,3,5,7"),
        ("0 0 1 JAN-mar *", "0 0 1 1-3 *"),
        ("00 007 * * *", "0 7 * * *"),
        ("0 */2 * * *", "0 0-23/2 * * *"),
        ("0 0 0 * * * *", "0 0 * * *"),
        ("*/100 * * * *", "0 * * * *"),
    ],
)
def test_two_spellings_mean_the_same(same: str, other: str) -> None:
    assert fires(same, count=20) == fires(other, count=20)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "has 0"),
        ("* * * *", "has 4"),
        ("* * * * * * * *", "has 8"),
        ("0 25 * * *", "the hour field ('25', column 3): 25 is not between 0 and 23"),
        ("0 0 0 * *", "the day of month field ('0', column 5): 0 is not between 1 and 31"),
        ("0 0 32 * *", "32 is not between 1 and 31"),
        ("0 0 * 13 *", "13 is not between 1 and 12"),
        ("0 0 * * 8", "8 is not between 0 and 7"),
        ("0 0 * * mon-xyz", "'xyz' is not a number or a three-letter name"),
        ("1,,2 * * * *", "an item of the list is empty"),
        ("1, * * * *", "an item of the list is empty"),
        ("*/0 * * * *", "a step must be at least 1"),
        ("*/ * * * *", "'' is not a number"),
        ("1-2-3 * * * *", "'2-3' is not a number"),
        ("-5 * * * *", "'' is not a number"),
        ("*-5 * * * *", "'*' is not a number"),
        ("1.5 * * * *", "'1.5' is not a number"),
        ("00000000001 * * * *", "is not a number"),
        ("0 0 L-31 * *", "no month has a day 31 days before its last"),
        ("0 0 32W * *", "32 is not between"),
        ("0 0 L/2 * *", "'l' is not a number"),
        ("0 0 W * *", "'' is not a number"),
        ("0 0 * * 1#6", "write 1 to 5 or L after #, not '6'"),
        ("0 0 * * 1#0", "write 1 to 5 or L after #, not '0'"),
        ("0 0 * * 1-3#2", "'1-3' is not a number"),
        ("0 0 * * +", "the field is empty"),
        ("0 0 * * ++1", "'+1' is not a number"),
        ("0 0 * ? *", "allowed only in the day fields"),
        ("0 0 ?/2 * *", "'?' is not a number"),
        ("0 0 0 1 1 ? 1969", "1969 is not between 1970 and 2199"),
        ("0 12 * * ? 2026", "a year needs all seven"),
        ("0 0 * * sat-sun", "Sunday is also 7, so write 6-7"),
        ("10-5 * * * *", "write 10-59,0-5"),
        ("0 0 * * *\n", "column 10: the character '\\n'"),
        ("0 0 * *\u00a0*", "is not allowed in a cron expression"),
        ("@reboot", "belong to no single machine"),
        ("@Daily", "write @daily"),
        ("@fortnightly", "the aliases are @yearly"),
        ("1," * 600 + "1 * * * *", "at most 1000 characters"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(expression: str, complaint: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        parse_cron(expression)
    assert complaint in str(caught.value)


@given(st.one_of(st.text(max_size=40), st.text(alphabet="0123456789*/-,#LW?+@ \tabcdefghmnorstuy", max_size=40)))
def test_no_text_makes_the_parser_fail_in_any_other_way(text: str) -> None:
    with suppress(InvalidSchedule):
        assert isinstance(parse_cron(text), Cron)


# --- clock changes --------------------------------------------------------------------------------------------------


def test_a_fixed_time_in_a_gap_runs_right_after_it() -> None:
    assert fires("30 2 * * *", "2026-03-28T12:00", 2, BERLIN) == ["2026-03-29T01:00", "2026-03-30T00:30"]


def test_several_fixed_times_in_one_gap_and_right_after_it_are_one_slot() -> None:
    assert fires("0,15,30 2,3 * * *", "2026-03-28T12:00", 3, BERLIN) == [
        "2026-03-29T01:00",
        "2026-03-29T01:15",
        "2026-03-29T01:30",
    ]


def test_the_slot_after_a_gap_is_found_from_the_last_instant_before_it_and_not_found_twice() -> None:
    assert fires("30 2 * * *", "2026-03-29T00:59:59.999999", 1, BERLIN) == ["2026-03-29T01:00"]
    assert fires("30 2 * * *", "2026-03-29T01:00", 1, BERLIN) == ["2026-03-30T00:30"]


def test_a_wildcard_follows_real_time_through_a_repeated_hour() -> None:
    assert fires("30 * * * *", "2026-10-24T23:45", 3, BERLIN) == [
        "2026-10-25T00:30",
        "2026-10-25T01:30",
        "2026-10-25T02:30",
    ]


def test_a_gap_policy_of_skip_drops_the_slot_and_can_list_it() -> None:
    assert fires("30 2 * * *", "2026-03-28T12:00", 1, BERLIN, SKIP) == ["2026-03-30T00:30"]
    year = (utc("2026-01-01T00:00"), utc("2027-01-01T00:00"), BERLIN)
    assert parse_cron("30 2 * * *").skipped_in_gaps(*year, SKIP) == [utc("2026-03-29T01:00")]
    assert parse_cron("30 2 * * *").skipped_in_gaps(*year, RUN_AFTER) == []
    assert parse_cron("30 4 * * *").skipped_in_gaps(*year, SKIP) == []


def test_listed_skips_lie_after_the_first_and_up_to_the_second_instant() -> None:
    cron, end_of_gap = parse_cron("30 2 * * *"), utc("2026-03-29T01:00")
    tick = timedelta(microseconds=1)
    assert cron.skipped_in_gaps(end_of_gap - tick, end_of_gap, BERLIN, SKIP) == [end_of_gap]
    assert cron.skipped_in_gaps(end_of_gap, end_of_gap + tick, BERLIN, SKIP) == []
    assert cron.skipped_in_gaps(end_of_gap - tick * 2, end_of_gap - tick, BERLIN, SKIP) == []


def test_an_instant_that_fires_by_its_own_time_is_not_listed_as_skipped() -> None:
    cron = parse_cron("0,30 2,3 * * *")
    assert cron.skipped_in_gaps(utc("2026-01-01T00:00"), utc("2027-01-01T00:00"), BERLIN, SKIP) == []
    assert cron.next(utc("2026-03-29T00:30"), BERLIN, SKIP) == utc("2026-03-29T01:00")


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (None, ["2026-10-25T00:30", "2026-10-26T01:30"]),
        (Fold.FIRST, ["2026-10-25T00:30", "2026-10-26T01:30"]),
        (Fold.SECOND, ["2026-10-25T01:30", "2026-10-26T01:30"]),
        (Fold.BOTH, ["2026-10-25T00:30", "2026-10-25T01:30"]),
    ],
)
def test_the_fold_policy_chooses_the_pass_of_a_repeated_time(fold: Fold | None, expected: list[str]) -> None:
    assert fires("30 2 * * *", "2026-10-24T12:00", 2, BERLIN, Dst(fold=fold)) == expected


def test_an_explicit_policy_holds_for_wildcards_too() -> None:
    assert fires("30 * * * *", "2026-10-24T23:45", 2, BERLIN, Dst(fold=Fold.FIRST)) == [
        "2026-10-25T00:30",
        "2026-10-25T02:30",
    ]
    assert fires("*/15 2 * * *", "2026-03-28T12:00", 1, BERLIN, RUN_AFTER) == ["2026-03-29T01:00"]


@pytest.mark.parametrize(
    ("zone", "expression", "after", "expected"),
    [
        (CAIRO, "30 0 * * *", "2026-04-23T12:00", ["2026-04-23T22:00", "2026-04-24T21:30"]),
        (SAO_PAULO, "0 0 4 11 *", "2018-11-01T00:00", ["2018-11-04T03:00"]),
        (LORD_HOWE, "15 2 * * *", "2026-10-03T12:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        (LORD_HOWE, "45 1 * * *", "2026-04-04T12:00", ["2026-04-04T14:45", "2026-04-05T15:15"]),
        (TROLL, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        (TROLL, "30 1 * * *", "2026-10-24T12:00", ["2026-10-24T23:30", "2026-10-26T01:30"]),
        (DUBLIN, "30 1 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        (DUBLIN, "30 1 * * *", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    ],
)
def test_unusual_clock_changes_follow_the_same_rules(
    zone: ZoneInfo, expression: str, after: str, expected: list[str]
) -> None:
    assert fires(expression, after, len(expected), zone) == expected


@pytest.mark.parametrize("dst", [Dst(), RUN_AFTER, SKIP])
def test_a_shift_of_three_hours_or_more_is_no_gap_but_a_corrected_clock(dst: Dst) -> None:
    """Samoa had no 30 December 2011: what was due that day does not run, nor is it a skipped slot."""
    assert fires("0 12 * * *", "2011-12-29T00:00", 2, APIA, dst) == ["2011-12-29T22:00", "2011-12-30T22:00"]
    assert parse_cron("0 12 * * *").skipped_in_gaps(utc("2011-12-01T00:00"), utc("2012-01-05T00:00"), APIA, dst) == []


def test_a_slot_tells_what_a_clock_change_did_to_it() -> None:
    def slot(expression: str, after: str, dst: Dst = DEFAULT_DST) -> NotedSlot | None:
        return parse_cron(expression).next_slot(utc(after), BERLIN, dst)

    missing, repeated = datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001 - wall times
    assert slot("30 2 * * *", "2026-03-28T12:00") == NotedSlot(
        utc("2026-03-29T01:00"), DstNote(DstNoteKind.AFTER_GAP, missing, once=True)
    )
    assert slot("30 2 * * *", "2026-10-24T12:00") == NotedSlot(
        utc("2026-10-25T00:30"), DstNote(DstNoteKind.FIRST_PASS, repeated, once=True)
    )
    assert slot("30 * * * *", "2026-10-25T00:30") == NotedSlot(
        utc("2026-10-25T01:30"), DstNote(DstNoteKind.SECOND_PASS, repeated, once=False)
    )
    assert slot("30 4 * * *", "2026-10-24T12:00") == NotedSlot(utc("2026-10-25T03:30"), None)


def test_no_clock_change_is_cut_where_the_table_of_a_zone_is() -> None:
    """Offsets are kept in chunks; each must know of changes just before its first instant and after its last."""
    border = zones.epoch_seconds(utc("2026-10-25T01:00")) & -(1 << zones.CHUNK_BITS)
    for instant in range(border - zones.DAY, border + zones.DAY, 3600):
        stretch = zones.stretch_at(BERLIN, instant)
        assert stretch.start <= instant < stretch.end
    first, second = (zones.stretch_at(BERLIN, border + side) for side in (-1, 0))
    assert first.end >= border + zones.DAY
    assert second.start <= border - zones.DAY


@pytest.mark.parametrize("name", [*sorted(available_timezones())[::8], "Africa/Casablanca", "Asia/Gaza", "Asia/Hebron"])
def test_clock_changes_of_the_far_future_are_found_with_few_looks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = zones.zone_named(name)
    year = 365 * zones.DAY
    spans = [(first, first + year) for first in (zones._RULES_FROM, zones._RULES_FROM + 300 * year)]
    found = [zones._offset_changes(zone, *span) for span in spans]
    monkeypatch.setattr(zones, "_RULES_PROBE_STEP", zones._PROBE_STEP)
    assert found == [zones._offset_changes(zone, *span) for span in spans]


# --- promises -------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), index=st.integers(0, len(CHANGES) - 1), shift=st.integers(-(10**6), 10**6))
def test_slots_only_move_forward_and_do_not_depend_on_where_the_search_began(seed: int, index: int, shift: int) -> None:
    name, change = CHANGES[index]
    zone, at = ZoneInfo(name), change_at(change)
    cron = parse_cron(expression_near(Random(seed), at, zone))
    after = at + timedelta(seconds=shift, microseconds=seed % 1_000_000)
    first = cron.next(after, zone)
    if first is None:
        return
    assert first > after
    assert cron.next(after + (first - after) / 2, zone) == first
    assert cron.next(first - timedelta(microseconds=1), zone) == first
    second = cron.next(first, zone)
    assert second is None or second > first


@pytest.mark.parametrize(
    "moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), utc("9000-12-31T23:59:59")]
)
@pytest.mark.parametrize("expression", ["* * * * * *", "0 0 29 2 *", "0 0 0 1 1 * 2030"])
def test_the_ends_of_time_are_no_error(moment: datetime, expression: str) -> None:
    found = parse_cron(expression).next(moment, BERLIN)
    assert found is None or found > moment
    assert parse_cron(expression).count(moment, moment, BERLIN) == 0


def test_a_search_without_a_find_ends_soon_even_where_every_match_falls_into_a_gap() -> None:
    assert fires("30 2 * 3 7L", dst=SKIP, zone=BERLIN) == []
    assert fires("0 0 0 29 2 ? 2099") == []


@pytest.mark.parametrize(
    ("expression", "microseconds"),
    [
        ("* * * * * *", 20),
        ("* * * * *", 20),
        ("*/5 * * * *", 20),
        ("0 9 * * mon-fri", 20),
        ("30 2 * * *", 20),
        ("0 0 L * *", 20),
        ("0 0 29 2 *", 100),
        ("0 0 29 2 */7", 100),
    ],
)
def test_the_next_slot_is_found_in_microseconds(expression: str, microseconds: float) -> None:
    cron, after = parse_cron(expression), utc("2026-07-01T08:17:13.000123")
    best = min(repeat(lambda: cron.next(after, BERLIN), number=200, repeat=20)) / 200
    assert best * 1e6 <= microseconds
