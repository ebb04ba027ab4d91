"""Describes a schedule in plain English; equal descriptions mean equal fire times."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import assert_never

from horae.core.schedule.cron import parse_cron
from horae.core.schedule.cron_syntax import LAST, DayOfMonth, DayOfWeek, Fields
from horae.core.schedule.dst import DstNote, DstNoteKind
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, Now, Recurring, Schedule
from horae.core.schedule.zones import zone_named

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST: "last"}
MAX_LISTED_TIMES = 4  # times of day; more are described field by field
UNITS = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))


def describe(schedule: Schedule) -> str:
    """The schedule as a phrase, such as `at 09:00 on Monday through Friday (Europe/Paris)`."""
    match schedule:
        case Now():
            return "once, at once"
        case At():
            return f"once, at {_moment(schedule.time, schedule.timezone)}"
        case Every():
            return f"every {_interval(schedule.interval)}{_options(schedule)}"
        case CronSchedule() | Calendar():
            fields = parse_cron(schedule.expression).fields
            return f"{describe_cron(fields)}{_zone(fields, schedule.timezone)}{_options(schedule)}"
        case _:
            assert_never(schedule)


def describe_cron(fields: Fields) -> str:
    """A cron expression as a phrase, without its time zone."""
    times = _times_of_day(fields)
    if date := _single_date(fields):
        return f"{times} on {date}"
    days = _days(fields)
    if not days and times.startswith("at ") and _lists_times(fields):
        days = "every day"
    return " ".join(filter(None, (times, days, _months(fields), _years(fields))))


def describe_note(note: DstNote, at: datetime, timezone: str) -> str:
    """A sentence on how daylight saving affected a slot."""
    local = f"{_time_of(note.local)} %s on {note.local:%Y-%m-%d} in {timezone}"
    match note.kind:
        case DstNoteKind.AFTER_GAP:
            return f"{local % 'does not exist'}; runs at {_time_of(at.astimezone(zone_named(timezone)))}"
        case DstNoteKind.FIRST_PASS:
            return f"{local % 'happens twice'}; {'runs the first time only' if note.once else 'this is the first'}"
        case DstNoteKind.SECOND_PASS:
            return f"{local % 'happens twice'}; {'runs the second time only' if note.once else 'this is the second'}"
        case _:
            assert_never(note.kind)


def describe_skip(at: datetime, timezone: str) -> str:
    """A sentence on a slot that `gap: skip` drops; `at` is the instant right after the gap."""
    local = at.astimezone(zone_named(timezone))
    return f"the slot before {_time_of(local)} on {local:%Y-%m-%d} in {timezone} does not exist; it is skipped"


# --- parts of a cron expression -------------------------------------------------------------------------------------


def _times_of_day(fields: Fields) -> str:
    hours = sorted(fields.hour.values)
    on_the_hour = fields.minute.values == {0} and fields.second.values == {0}
    if on_the_hour and (phrase := _every("hour", hours, 24)):
        return phrase
    if _lists_times(fields):
        return f"at {_listed(_clock_times(fields))}"
    once_an_hour = len(fields.minute.values) == 1 and fields.second.values == {0}
    if once_an_hour and len(hours) < 24 and len(_consecutive(hours)) == 1:
        [minute] = fields.minute.values
        return f"every hour from {hours[0]:02}:{minute:02} to {hours[-1]:02}:{minute:02}"
    return _nested(fields)


def _lists_times(fields: Fields) -> bool:
    return len(fields.hour.values) * len(fields.minute.values) * len(fields.second.values) <= MAX_LISTED_TIMES


def _clock_times(fields: Fields) -> list[str]:
    parts = (sorted(field.values) for field in (fields.hour, fields.minute, fields.second))
    return [f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "") for hour, minute, second in product(*parts)]


def _nested(fields: Fields) -> str:
    """The fields from finest to coarsest, such as `every 10 seconds of minute 5 of every hour`."""
    levels = [("minute", sorted(fields.minute.values), 60), ("hour", sorted(fields.hour.values), 24)]
    if fields.second.values != {0}:
        levels.insert(0, ("second", sorted(fields.second.values), 60))
    (unit, values, size), *coarser = levels
    phrases = [_every(unit, values, size) or f"at {_counted(unit, values)}"]
    for unit, values, size in coarser:
        if len(values) < size:
            phrases.append(_every_nth(unit, values, size) or _counted(unit, values))
        elif not phrases[-1].startswith("every"):  # every second of every minute is every second
            phrases.append(f"every {unit}")
    return " of ".join(phrases)


def _every(unit: str, values: Sequence[int], size: int) -> str:
    """`every 5 minutes` if the values repeat evenly, else empty."""
    step = size // len(values)
    if list(values) != list(range(0, size, step)) or size % step or len(values) == 1:
        return ""
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _every_nth(unit: str, values: Sequence[int], size: int) -> str:
    step = size // len(values)
    ordinal = {2: "2nd", 3: "3rd"}.get(step, f"{step}th")
    return f"every {ordinal} {unit} from 0" if _every(unit, values, size) else ""


def _single_date(fields: Fields) -> str:
    """`1 January` or `1 January 2030`; empty unless the fields name one day of one month."""
    day, month = fields.day, fields.month
    if day.depends_on_month or not fields.weekday.is_any or len(day.values) != 1 or len(month.values) != 1:
        return ""
    if fields.year is not None and len(fields.year.values) > 1:
        return ""
    years = list(fields.year.values) if fields.year else []
    return " ".join(map(str, [*day.values, MONTHS[min(month.values) - 1], *years]))


def _days(fields: Fields) -> str:
    every_date, every_weekday = len(fields.day.values) == 31, len(fields.weekday.values) == 7
    by_date, by_weekday = f"on {_dates(fields.day)}", f"on {_weekdays(fields.weekday)}"
    if fields.both_days:
        if every_date or every_weekday:
            return "" if every_date and every_weekday else by_weekday if every_date else by_date
        return f"{by_date} if that is {_weekdays(fields.weekday, 'or')}"
    return "" if every_date or every_weekday else f"{by_date} or {by_weekday}"


def _dates(day: DayOfMonth) -> str:
    dates = [_counted("day", sorted(day.values))] if day.values else []
    dates += [f"the workday nearest to day {target}" for target in sorted(day.near)]
    dates += [f"{_plural(back, 'day')} before the last day" for back in sorted(day.before_last - {0}, reverse=True)]
    dates += ["the last day"] if 0 in day.before_last else []
    dates += ["the last workday"] if day.last_workday else []
    return f"{_listed(dates)} of the month"


def _weekdays(weekday: DayOfWeek, joint: str = "and") -> str:
    monday_first = sorted(day or 7 for day in weekday.values)
    nth = sorted(weekday.nth, key=lambda item: (item[1] or 6, item[0] or 7))
    named = _ranges(monday_first, WEEKDAYS.__getitem__)
    return _listed([*named, *(f"the {ORDINALS[which]} {WEEKDAYS[day]} of the month" for day, which in nth)], joint)


def _months(fields: Fields) -> str:
    if len(fields.month.values) == 12:
        return ""
    return f"in {_listed(_ranges(sorted(fields.month.values), lambda month: MONTHS[month - 1]))}"


def _years(fields: Fields) -> str:
    if fields.year is None:
        return ""
    return f"{'in' if len(fields.month.values) == 12 else 'of'} {_listed(_ranges(sorted(fields.year.values), str))}"


# --- words and numbers ----------------------------------------------------------------------------------------------


def _listed(items: Sequence[str], joint: str = "and") -> str:
    *most, last = items
    return f"{', '.join(most)} {joint} {last}" if most else last


def _ranges(values: Sequence[int], name: Callable[[int], str]) -> list[str]:
    """The names of the values; three or more in a row as `first through last`."""
    pieces: list[str] = []
    for row in _consecutive(values):
        pieces += [f"{name(row[0])} through {name(row[-1])}"] if len(row) > 2 else [name(value) for value in row]
    return pieces


def _consecutive(values: Sequence[int]) -> list[list[int]]:
    """The values, split where one does not follow the one before."""
    rows: list[list[int]] = []
    for value in values:
        if rows and value == rows[-1][-1] + 1:
            rows[-1].append(value)
        else:
            rows.append([value])
    return rows


def _counted(unit: str, values: Sequence[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_listed(_ranges(values, str))}"


def _plural(count: float, unit: str) -> str:
    return f"{count:.9g} {unit}{'' if count == 1 else 's'}"


def _interval(interval: timedelta) -> str:
    """`5 minutes`, and `minute` rather than `1 minute`."""
    span = _duration(interval)
    return span.removeprefix("1 ") if span.count(" ") == 1 else span


def _duration(duration: timedelta) -> str:
    """`1 minute`, `1 hour 30 minutes`, `0.5 seconds`."""
    pieces = []
    rest = duration
    for unit, size in UNITS:
        count, rest = divmod(rest, size)
        if count:
            pieces.append(_plural(count, unit))
    if rest:
        pieces.append(_plural(rest.total_seconds(), "second"))
    return " ".join(pieces)


def _time_of(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def _moment(moment: datetime, timezone: str) -> str:
    local = moment.astimezone(zone_named(timezone))
    return f"{local:%Y-%m-%d} {_time_of(local)} ({timezone})"


def _zone(fields: Fields, timezone: str) -> str:
    """The time zone, unless it is UTC and the expression fires all day, every day."""
    sizes = ((fields.hour, 24), (fields.day, 31), (fields.month, 12), (fields.weekday, 7))
    all_day = fields.year is None and all(len(field.values) == size for field, size in sizes)
    return "" if all_day and timezone == "UTC" else f" ({timezone})"


def _options(schedule: Recurring) -> str:
    pieces = []
    if schedule.starts_at is not None:
        pieces.append(f", from {_moment(schedule.starts_at, schedule.timezone)}")
    if schedule.ends_at is not None:
        pieces.append(f", before {_moment(schedule.ends_at, schedule.timezone)}")
    if schedule.jitter:
        pieces.append(f", each up to {_duration(schedule.jitter)} later")
    return "".join(pieces)
