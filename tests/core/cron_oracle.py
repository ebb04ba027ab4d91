"""A second, slow opinion on when cron expressions fire: it looks at every minute of a window through `zoneinfo`.

It shares no code with the evaluator, and no idea either: no tables, no offsets, no search. A minute is asked what its
local clock shows; a day is asked whether its text fits; a gap is where two clocks a minute apart show more than that.
"""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
THREE_HOURS = timedelta(hours=3)
MONTH_NAMES = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
DAY_NAMES = {name.lower(): (number + 1) % 7 for number, name in enumerate(calendar.day_abbr)}


@dataclass(frozen=True)
class Minute:
    """A real minute as its local clock shows it."""

    at: datetime
    local: datetime
    turn: str  # "only", or "first" and "second" of a repeated time


@dataclass(frozen=True)
class Window:
    zone: ZoneInfo
    start: datetime
    end: datetime
    minutes: tuple[Minute, ...]
    holes: dict[datetime, list[datetime]]  # by the first instant after it: the local minutes that do not exist


def look(zone: ZoneInfo, start: datetime, end: datetime) -> Window:
    """Everything that the clocks of a zone show from `start` (a whole minute) to `end`."""
    minutes = tuple(_minute(zone, at) for at in _each_minute(start, end))
    holes = {
        after.at: list(_each_minute(before.local + MINUTE, after.local))
        for before, after in pairwise(minutes)
        if MINUTE < after.local - before.local < THREE_HOURS + MINUTE
    }
    return Window(zone, start, end, minutes, holes)


def fires(
    window: Window, expression: str, gap: str | None = None, fold: str | None = None, after: datetime | None = None
) -> Iterator[datetime]:
    """The fire times of the window after `after`, which is its first instant if not given, in order."""
    sec, minute, hour, day, month, weekday, year = _seven(expression)
    fixed = minute[0] != "*" and hour[0] != "*"
    gap = gap or ("run_after" if fixed else "skip")
    fold = fold or ("first" if fixed else "both")
    turns = {"first": ("only", "first"), "second": ("only", "second"), "both": ("only", "first", "second")}[fold]
    seconds = sorted(numbers(sec, 0, 59))
    minutes, hours, months = numbers(minute, 0, 59), numbers(hour, 0, 23), numbers(month, 1, 12)
    years = numbers(year, 1970, 2199)
    fits_date = lru_cache(
        lambda date: date.month in months and (year == "*" or date.year in years) and fits_day(date, day, weekday)
    )

    def fits(local: datetime) -> bool:
        return local.minute in minutes and local.hour in hours and fits_date(local.date())

    after = after or window.start
    begin = max(int((after - window.start) / MINUTE), 0)
    for seen in window.minutes[begin:]:
        real = seen.turn in turns and fits(seen.local)
        found = [seen.at + timedelta(seconds=second) for second in seconds] if real else []
        if gap == "run_after" and seen.at in window.holes and any(map(fits, window.holes[seen.at])):
            found = [seen.at, *(at for at in found if at != seen.at)]
        if found:
            yield from (at for at in found if at > after)


def fits_day(day: date, of_month: str, of_week: str) -> bool:
    both = of_week.startswith("+") or of_month[0] in "*?" or of_week[0] in "*?"
    by_date = _fits_date(day, of_month)
    by_weekday = _fits_weekday(day, of_week.lstrip("+"))
    return (by_date and by_weekday) if both else (by_date or by_weekday)


@lru_cache(maxsize=100_000)
def _fits_date(day: date, text: str) -> bool:
    return any(_fits_date_item(day, item.upper()) for item in text.split(","))


def _fits_date_item(day: date, item: str) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == last
    if item.startswith("L-"):
        return day.day == last - int(item[2:])
    if item == "LW":
        return day == _workday_near(day.replace(day=last))
    if item.endswith("W"):
        target = int(item[:-1])
        return target <= last and day == _workday_near(day.replace(day=target))
    return day.day in numbers(item.replace("?", "*"), 1, 31)


def _workday_near(day: date) -> date:
    """The Monday to Friday of the same month that is the fewest days away; no two are equally near."""
    month = [date(day.year, day.month, number + 1) for number in range(calendar.monthrange(day.year, day.month)[1])]
    return min((other for other in month if other.weekday() < 5), key=lambda other: abs((other - day).days))


@lru_cache(maxsize=100_000)
def _fits_weekday(day: date, text: str) -> bool:
    return any(_fits_weekday_item(day, item.lower()) for item in text.split(","))


def _fits_weekday_item(day: date, item: str) -> bool:
    if "#" in item or item.endswith("l"):
        name, _, which = item.partition("#") if "#" in item else (item[:-1], "", "l")
        same = day.isoweekday() % 7 == min(numbers(name, 0, 7)) % 7
        if which == "l":
            return same and (day + timedelta(days=7)).month != day.month
        return same and (day.day - 1) // 7 + 1 == int(which)
    return day.isoweekday() % 7 in {number % 7 for number in numbers(item.replace("?", "*"), 0, 7)}


@lru_cache(maxsize=100_000)
def numbers(text: str, low: int, high: int) -> frozenset[int]:
    """The numbers that a plain field names, found by asking each number of the field."""
    items = [_item(item, low, high) for item in text.split(",")]
    return frozenset(
        number
        for number in range(low, high + 1)
        if any(start <= number <= end and (number - start) % step == 0 for start, end, step in items)
    )


def _item(item: str, low: int, high: int) -> tuple[int, int, int]:
    found = re.fullmatch(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?", item)
    assert found, item
    first, last, step = found.groups()
    start = low if first == "*" else _number(first)
    end = _number(last) if last else high if first == "*" or step else start
    return start, end, int(step or 1)


def _number(word: str) -> int:
    return int(word) if word.isdigit() else {**MONTH_NAMES, **DAY_NAMES}[word.lower()]


def _seven(expression: str) -> list[str]:
    parts = expression.split()
    if len(parts) == 5:
        parts = ["0", *parts]
    return parts if len(parts) == 7 else [*parts, "*"]


def _each_minute(start: datetime, end: datetime) -> Iterator[datetime]:
    at = start
    while at < end:
        yield at
        at += MINUTE


def _minute(zone: ZoneInfo, at: datetime) -> Minute:
    local = at.astimezone(zone)
    return Minute(at, local.replace(tzinfo=None, fold=0), _turn(local))


def _turn(local: datetime) -> str:
    earlier = local.replace(fold=0).astimezone(UTC)
    later = local.replace(fold=1).astimezone(UTC)
    if not timedelta() < later - earlier < THREE_HOURS:  # Debian: a larger shift corrects the clock
        return "only"
    return "second" if local.fold else "first"
