"""The local times that a cron expression matches, on a clock that never jumps, as whole seconds since 1970."""

from bisect import bisect_left
from calendar import isleap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from horae.core.schedule.cron_syntax import LAST, DayOfMonth, DayOfWeek, Fields
from horae.core.schedule.zones import DAY

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SUNDAY, _SATURDAY = 0, 6
_WEEKLY = tuple(sum(1 << day for day in range(1 + late, 32, 7)) for late in range(7))  # every seventh day, as bits


@dataclass(frozen=True, slots=True)
class WallTimes:
    """Tables that turn the search for a local time into a few look-ups; days of a month are bits of an integer."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    next_second: tuple[int, ...]  # [v]: the least allowed value >= v, or -1
    next_minute: tuple[int, ...]
    next_hour: tuple[int, ...]
    next_month: tuple[int, ...]
    years: tuple[int, ...]  # empty: every year
    days: tuple[tuple[int, ...], ...]  # [month length - 28][weekday of the first]
    first_time: int  # of a matching day, in seconds

    def on_or_after(self, local: int, last_year: int) -> int | None:
        """The first match that is not before `local`; None if there is none by the end of `last_year`."""
        number, time = divmod(local, DAY)
        day = date.fromordinal(number + _EPOCH_ORDINAL)
        days = self._days_of(day.year, day.month)
        if days >> day.day & 1:
            found = self._time_from(time)
            if found >= 0:
                return number * DAY + found
        next_day = self._day_after(day, days, last_year)
        return None if next_day is None else next_day * DAY + self.first_time

    def count(self, first: int, end: int) -> int:
        """The number of matches with `first <= time < end`."""
        if end <= first:
            return 0
        first_day, first_time = divmod(first, DAY)
        end_day, end_time = divmod(end, DAY)
        per_day = len(self.hours) * len(self.minutes) * len(self.seconds)
        whole_days = self._count_days(first_day, end_day) * per_day
        return whole_days - self._times_before(first_day, first_time) + self._times_before(end_day, end_time)

    def contains(self, local: int) -> bool:
        return self.count(local, local + 1) == 1

    def _time_from(self, time: int) -> int:
        """The first matching time of day that is not before `time`, or -1."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        if self.next_hour[hour] == hour:
            if self.next_minute[minute] == minute:
                found = self.next_second[second]
                if found >= 0:
                    return time - second + found
                minute += 1
            found = self.next_minute[minute]
            if found >= 0:
                return hour * 3600 + found * 60 + self.seconds[0]
            hour += 1
        found = self.next_hour[hour]
        return -1 if found < 0 else found * 3600 + self.minutes[0] * 60 + self.seconds[0]

    def _day_after(self, day: date, days: int, last_year: int) -> int | None:
        """The first matching day after `day`, counted from 1970; `days` are those of its month."""
        year, month = day.year, day.month
        days = days >> (day.day + 1) << (day.day + 1)
        while not days:
            month = self.next_month[month + 1]
            if month < 0:
                year, month = self._year_after(year), self.next_month[1]
                if not 0 < year <= last_year:
                    return None
            days = self._days_of(year, month)
        return date(year, month, (days & -days).bit_length() - 1).toordinal() - _EPOCH_ORDINAL

    def _year_after(self, year: int) -> int:
        if not self.years:
            return year + 1
        index = bisect_left(self.years, year + 1)
        return self.years[index] if index < len(self.years) else -1

    def _days_of(self, year: int, month: int) -> int:
        if self.next_month[month] != month or (self.years and year not in self.years):
            return 0
        length, weekday = _month_shape(year, month)
        return self.days[length - 28][weekday]

    def _count_days(self, first: int, end: int) -> int:
        start, stop = (date.fromordinal(number + _EPOCH_ORDINAL) for number in (first, end))
        total = -(self._days_of(start.year, start.month) & _days_before(start)).bit_count()
        year, month = start.year, start.month
        while (year, month) != (stop.year, stop.month):
            total += self._days_of(year, month).bit_count()
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return total + (self._days_of(year, month) & _days_before(stop)).bit_count()

    def _times_before(self, number: int, time: int) -> int:
        """The number of matches of a day before `time`; 0 if the day does not match."""
        day = date.fromordinal(number + _EPOCH_ORDINAL)
        if not self._days_of(day.year, day.month) >> day.day & 1:
            return 0
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        total = bisect_left(self.hours, hour) * len(self.minutes) * len(self.seconds)
        if self.next_hour[hour] == hour:
            total += bisect_left(self.minutes, minute) * len(self.seconds)
            if self.next_minute[minute] == minute:
                total += bisect_left(self.seconds, second)
        return total


def wall_times(fields: Fields) -> WallTimes:
    """Build the tables for a parsed expression."""
    seconds, minutes, hours = (tuple(sorted(part.values)) for part in (fields.second, fields.minute, fields.hour))
    return WallTimes(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        next_second=_successors(seconds, 60),
        next_minute=_successors(minutes, 60),
        next_hour=_successors(hours, 24),
        next_month=_successors(sorted(fields.month.values), 13),
        years=tuple(sorted(fields.year.values)) if fields.year else (),
        days=_days_by_shape(fields),
        first_time=hours[0] * 3600 + minutes[0] * 60 + seconds[0],
    )


def _successors(values: Iterable[int], size: int) -> tuple[int, ...]:
    """A table for every v up to and including `size`: the least of the values that is not below v, or -1."""
    table = [-1] * (size + 1)
    allowed = set(values)
    for value in range(size - 1, -1, -1):
        table[value] = value if value in allowed else table[value + 1]
    return tuple(table)


@lru_cache(maxsize=8192)
def _month_shape(year: int, month: int) -> tuple[int, int]:
    """The length of a month and the weekday of its first day, with 0 for Sunday."""
    length = 29 if month == 2 and isleap(year) else _MONTH_LENGTHS[month]
    return length, date(year, month, 1).toordinal() % 7


def _days_before(day: date) -> int:
    return (1 << day.day) - 1


def _days_by_shape(fields: Fields) -> tuple[tuple[int, ...], ...]:
    """The matching days of every month shape, by [length - 28][weekday of the first]."""
    dates = _bits(fields.day.values)
    return tuple(tuple(_matching_days(fields, dates, length, first) for first in range(7)) for length in range(28, 32))


def _matching_days(fields: Fields, dates: int, length: int, first: int) -> int:
    by_date = dates | _dates_by_month(fields.day, length, first) if fields.day.depends_on_month else dates
    by_weekday = _days_by_weekday(fields.weekday, length, first)
    days = by_date & by_weekday if fields.both_days else by_date | by_weekday
    return days & ((2 << length) - 2)


def _dates_by_month(day: DayOfMonth, length: int, first: int) -> int:
    days = {length - back for back in day.before_last if back < length}
    days.update(_nearest_workday(target, length, first) for target in day.near if target <= length)
    if day.last_workday:
        days.add(_nearest_workday(length, length, first))
    return _bits(days)


def _nearest_workday(target: int, length: int, first: int) -> int:
    weekday = (first + target - 1) % 7
    if weekday == _SATURDAY:
        return target - 1 if target > 1 else 3
    if weekday == _SUNDAY:
        return target + 1 if target < length else target - 2
    return target


def _days_by_weekday(weekday: DayOfWeek, length: int, first: int) -> int:
    days = sum([_WEEKLY[(which - first) % 7] for which in weekday.values])
    for which, nth in weekday.nth:
        occurrences = range(1 + (which - first) % 7, length + 1, 7)
        if nth == LAST:
            days |= 1 << occurrences[-1]
        elif nth <= len(occurrences):
            days |= 1 << occurrences[nth - 1]
    return days


def _bits(days: Iterable[int]) -> int:
    return sum(1 << day for day in days)
