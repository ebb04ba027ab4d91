"""The evaluator at full size: every zone, every clock change, and a reference library minus its known faults."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim, CronSimError

from horae.core.schedule.cron import parse_cron
from horae.core.schedule.dst import DEFAULT_DST, Dst, Fold, Gap
from tests.core.cron_cases import CHANGES, change_at, expression_near
from tests.core.cron_oracle import Window, fires, look
from tests.core.test_cron_differential import POLICIES, day_disagreements, disagreements

pytestmark = pytest.mark.acceptance

CASES = 200_000
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
STEP, REACH = timedelta(hours=3), timedelta(hours=4)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("seed", range(100, 110))
def test_two_hundred_thousand_random_cases_agree_with_the_oracle(seed: int) -> None:
    assert disagreements(seed, CASES // 10) == []


def test_the_days_of_thousands_of_random_expressions_agree_with_the_oracle() -> None:
    assert day_disagreements(seed=8, cases=2_000) == []


# --- every zone and every clock change from 2000 to 2037 ------------------------------------------------------------


def zones_by_rules() -> list[list[str]]:
    """All zone names, those with equal data together, so that the slow oracle looks at each set of rules once."""
    groups: dict[bytes, list[str]] = defaultdict(list)
    for name in sorted(available_timezones() - {"localtime"}):
        groups[_data(name)].append(name)
    return list(groups.values())


def _data(name: str) -> bytes:
    path = Path("/usr/share/zoneinfo") / name
    return path.read_bytes() if path.is_file() else name.encode()


def clock_changes(zone: ZoneInfo) -> list[datetime]:
    changes, at, offset = [], FIRST, FIRST.astimezone(zone).utcoffset()
    while at < LAST:
        later = (at + STEP).astimezone(zone).utcoffset()
        if later != offset:
            changes.append(_turn(zone, at, at + STEP))
        at, offset = at + STEP, later
    return changes


def _turn(zone: ZoneInfo, left: datetime, right: datetime) -> datetime:
    """The first whole minute with the new offset."""
    offset = left.astimezone(zone).utcoffset()
    while left.astimezone(zone).utcoffset() == offset:
        left += MINUTE
    assert left <= right
    return left


def entries_for(zone: ZoneInfo, change: datetime) -> list[tuple[str, Dst]]:
    """A fixed entry within the gap or the repeated time, under each policy, a wildcard, and one with seconds."""
    shown, expected = (moment.astimezone(zone).replace(tzinfo=None, fold=0) for moment in (change, change - MINUTE))
    local = min(shown, expected + MINUTE)  # where the repeated time, or the gap, begins
    inside = local + timedelta(minutes=17)
    fixed = f"{inside.minute} {inside.hour} * * *"
    return [
        *((fixed, dst) for dst in POLICIES),
        (f"*/13 {inside.hour} * * *", DEFAULT_DST),
        (f"*/20 {inside.minute} * * * *", DEFAULT_DST),
        (f"45 {inside.minute},59 {inside.hour} * * *", DEFAULT_DST),
    ]


def fires_by_evaluator(name: str, window: Window, expression: str, dst: Dst) -> list[datetime]:
    cron, zone, found = parse_cron(expression), ZoneInfo(name), []
    at = cron.next(window.start, zone, dst)
    while at is not None and at < window.end:
        found.append(at)
        at = cron.next(at, zone, dst)
    return found


def test_every_clock_change_of_every_zone_from_2000_to_2037_agrees_with_the_oracle() -> None:
    wrong, changes = [], 0
    for names in zones_by_rules():
        zone = ZoneInfo(names[0])
        for change in clock_changes(zone):
            window = look(zone, change - REACH, change + REACH)
            for expression, dst in entries_for(zone, change):
                expected = list(fires(window, expression, dst.gap, dst.fold))
                wrong += [
                    (name, expression, dst, change)
                    for name in names
                    if fires_by_evaluator(name, window, expression, dst) != expected
                ]
            changes += len(names)
    assert wrong == []
    assert changes > 10_000  # else the tables of this machine hold no changes, and nothing was shown


# --- cronsim, a reference with known faults -------------------------------------------------------------------------


def _asked_in_a_repeated_hour(expression: str, zone: ZoneInfo, after: datetime) -> bool:
    """It forgets which pass of the hour it was asked in (trap 25)."""
    local = after.astimezone(zone)
    return local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()


def _steps_over_one_value(expression: str, zone: ZoneInfo, after: datetime) -> bool:
    """It reads `a-a/n` as `a/n` (trap 2)."""
    items = (item.partition("/") for field in expression.split() for item in field.split(","))
    return any(slash and len(set(span.split("-"))) == 1 and "-" in span for span, slash, _ in items)


def _shift_off_the_hour(expression: str, zone: ZoneInfo, after: datetime) -> bool:
    """It steps by whole hours and days of local time, so it trips over shifts at midnight, at one minute past the hour
    and by half an hour (traps 29 and 30)."""
    at_midnight = ("Africa/Cairo", "America/Sao_Paulo")
    within_the_hour = ("America/St_Johns", "Australia/Lord_Howe", "Asia/Pyongyang", "America/Caracas")
    return zone.key in (*at_midnight, *within_the_hour)


def _more_than_daylight_saving(expression: str, zone: ZoneInfo, after: datetime) -> bool:
    """It knows no limit of three hours beyond which the clock is corrected."""
    return zone.key in ("Pacific/Apia", "Antarctica/Casey")


KNOWN_FAULTS: list[Callable[[str, ZoneInfo, datetime], bool]] = [
    _asked_in_a_repeated_hour,
    _steps_over_one_value,
    _shift_off_the_hour,
    _more_than_daylight_saving,
]


def test_cronsim_agrees_wherever_it_has_no_known_fault() -> None:
    rng, compared, wrong = Random(5), 0, []
    for _ in range(40_000):
        name, change = rng.choice(CHANGES)
        zone, after = ZoneInfo(name), change_at(change) + timedelta(seconds=rng.randint(-36_000, 36_000))
        expression = expression_near(rng, change_at(change), zone, (5,)).replace("+", "").replace("?", "*")
        if any(fault(expression, zone, after) for fault in KNOWN_FAULTS):
            continue
        try:
            theirs = next(CronSim(expression, after.astimezone(zone))).astimezone(UTC)
        except (CronSimError, StopIteration):
            continue  # syntax that it lacks, or dates that it rejects when parsing
        compared += 1
        ours = parse_cron(expression).next(after, zone)
        if ours != theirs:
            wrong.append((expression, name, after, ours, theirs))
    assert wrong == []
    assert compared > 10_000


@pytest.mark.parametrize(
    ("expression", "name", "after", "ours", "theirs"),
    [
        ("55-55/2 * * * *", "UTC", "2026-01-01T00:55", "2026-01-01T01:55", "2026-01-01T00:57"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15", "2026-10-26T01:30", "2026-10-25T00:30"),
        ("* 23 * * 0", "Australia/Lord_Howe", "2026-10-03T15:00", "2026-10-04T12:00", "2026-10-04T12:30"),
        ("* 2 * * *", "America/St_Johns", "2010-03-14T03:53", "2010-03-14T04:30", "2010-03-15T04:30"),
    ],
)
def test_the_known_faults_of_cronsim_are_real_and_not_ours(
    expression: str, name: str, after: str, ours: str, theirs: str
) -> None:
    zone, start = ZoneInfo(name), change_at(after)
    assert parse_cron(expression).next(start, zone) == change_at(ours)
    assert next(CronSim(expression, start.astimezone(zone))).astimezone(UTC) == change_at(theirs)


def test_the_policies_tried_are_all_there_are() -> None:
    assert len(POLICIES) == (1 + len(Gap)) * (1 + len(Fold))
