"""The evaluator against an oracle that shares no code with it, on random expressions around clock changes."""

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest

from horae.core.schedule.cron import parse_cron
from horae.core.schedule.dst import Dst, Fold, Gap
from tests.core.cron_cases import CHANGES, change_at, expression_near
from tests.core.cron_oracle import Window, fires, fits_day, look, numbers

POLICIES = [Dst(gap, fold) for gap in (None, *Gap) for fold in (None, *Fold)]
REACH = timedelta(hours=7)
CASES = 8_000  # the acceptance test tries 200,000
LISTED = 12  # fires compared in one case, at most


@lru_cache(maxsize=256)
def window_at(name: str, change: str) -> Window:
    at = change_at(change)
    return look(ZoneInfo(name), at - REACH, at + REACH)


def fires_by_evaluator(window: Window, expression: str, dst: Dst, after: datetime) -> list[datetime]:
    cron = parse_cron(expression)
    found: list[datetime] = []
    at = cron.next(after, window.zone, dst)
    while at is not None and at < window.end and len(found) < LISTED:
        found.append(at)
        at = cron.next(at, window.zone, dst)
    return found


def disagreement(rng: Random, name: str, change: str) -> str | None:
    window = window_at(name, change)
    expression = expression_near(rng, change_at(change), window.zone)
    dst = rng.choice(POLICIES)
    after = window.start + timedelta(seconds=rng.randint(0, 36_000), microseconds=rng.choice((0, 1)))
    expected = list(islice(fires(window, expression, dst.gap, dst.fold, after), LISTED))
    found = fires_by_evaluator(window, expression, dst, after)
    if found == expected:
        return None
    return f"{expression!r} in {name} {dst} after {after}: {found[:3]} but the oracle says {expected[:3]}"


def disagreements(seed: int, cases: int) -> list[str]:
    rng = Random(seed)
    checked = (disagreement(rng, *rng.choice(CHANGES)) for _ in range(cases))
    return [found for found in checked if found]


@pytest.mark.parametrize("seed", range(2))
def test_the_evaluator_agrees_with_a_brute_force_oracle_around_clock_changes(seed: int) -> None:
    assert disagreements(seed, CASES // 2) == []


def day_disagreements(seed: int, cases: int) -> list[str]:
    """Which days fire, over years rather than hours."""
    rng, wrong = Random(seed), []
    for _ in range(cases):
        first = date(rng.randint(1970, 2110), rng.randint(1, 12), rng.randint(1, 28))
        noon = datetime(first.year, first.month, first.day, 12, tzinfo=UTC)
        _, _, day, month, weekday = expression_near(rng, noon, ZoneInfo("UTC"), (5,)).split()
        cron = parse_cron(f"0 12 {day} {month} {weekday}")
        expected = [at for at in (noon + timedelta(days=n) for n in range(1, 800)) if fires_on(at, day, month, weekday)]
        found, at = [], cron.next(noon, ZoneInfo("UTC"))
        while at is not None and at < noon + timedelta(days=800):
            found.append(at)
            at = cron.next(at, ZoneInfo("UTC"))
        if found != expected:
            wrong.append(f"{cron.expression!r} after {noon}: {found[:3]} but the oracle says {expected[:3]}")
    return wrong


def fires_on(at: datetime, day: str, month: str, weekday: str) -> bool:
    return at.month in numbers(month, 1, 12) and fits_day(at.date(), day, weekday)


def test_the_evaluator_agrees_with_the_oracle_on_the_days_of_several_years() -> None:
    assert day_disagreements(seed=7, cases=150) == []


def test_counting_slots_agrees_with_walking_them() -> None:
    rng = Random(11)
    for _ in range(1_000):
        name, change = rng.choice(CHANGES)
        window, dst = window_at(name, change), rng.choice(POLICIES)
        expression = expression_near(rng, change_at(change), window.zone)
        start = window.start + timedelta(seconds=rng.randint(1, 20_000), microseconds=rng.choice((0, 1)))
        end = start + timedelta(seconds=rng.randint(0, 14_000), microseconds=rng.choice((0, 1)))
        expected = sum(
            at < end for at in fires(window, expression, dst.gap, dst.fold, start - timedelta(microseconds=1))
        )
        assert parse_cron(expression).count(start, end, window.zone, dst) == expected, (
            expression,
            name,
            dst,
            start,
            end,
        )
