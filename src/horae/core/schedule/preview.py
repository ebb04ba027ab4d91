"""Previews a schedule before it is created: its next fires with DST notes, and warnings."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from horae.core.schedule.cron import parse_cron
from horae.core.schedule.cron_syntax import Fields
from horae.core.schedule.describe import describe_note, describe_skip
from horae.core.schedule.evaluate import next_slot, next_slot_from, skipped_in_gaps
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, NotedSlot, Now, Schedule
from horae.core.schedule.zones import clock_changes, zone_named

_SHORTEST = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days of each month in an ordinary year
_OFTEN = "it fires more often than once a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A slot as a user previews it, with a sentence where daylight saving affects it."""

    at: datetime
    note: str | None = None


def preview(schedule: Schedule, after: datetime, count: int) -> list[Fire]:
    """The next `count` fires strictly after `after`."""
    fires: list[Fire] = []
    slot = next_slot(schedule, after)
    while slot is not None and len(fires) < count:
        fires.append(Fire(at=slot.at, note=_note(schedule, slot)))
        slot = next_slot(schedule, slot.at)
    return fires


def warnings(schedule: Schedule, after: datetime | None = None) -> list[str]:
    """What may surprise the user; with `after` also how the clock changes of the following year affect fixed times."""
    match schedule:
        case Now() | At():
            return []
        case Every():
            return [_OFTEN] if schedule.interval < timedelta(minutes=1) else []
        case CronSchedule() | Calendar():
            cron = parse_cron(schedule.expression)
            clock = _clock_change_warnings(schedule, after) if cron.fixed and after is not None else []
            return _syntax_warnings(cron.fields) + clock
        case _:
            assert_never(schedule)


def _note(schedule: Schedule, slot: NotedSlot) -> str | None:
    if slot.note is None or not isinstance(schedule, CronSchedule | Calendar):
        return None
    return describe_note(slot.note, slot.at, schedule.timezone)


def _syntax_warnings(fields: Fields) -> list[str]:
    found = []
    if not fields.both_days:
        found.append(
            "day of month and day of week are both set, so it fires when either matches; "
            "put + before the day of week to require both"
        )
    if len(fields.second.values) > 1:
        found.append(_OFTEN)
    if missing := _day_that_some_months_lack(fields):
        found.append(f"it skips months without a day {missing}; L is the last day of any month")
    found.extend(
        f"the step of {item} is larger than the {name} field, so only the first value matches"
        for name, item in fields.useless_steps()
    )
    return found


def _day_that_some_months_lack(fields: Fields) -> int | None:
    day = fields.day
    earliest = min(day.values, default=1)
    if day.depends_on_month or not fields.weekday.is_any or all(earliest <= _SHORTEST[m] for m in fields.month.values):
        return None
    return earliest


def _clock_change_warnings(schedule: CronSchedule | Calendar, after: datetime) -> list[str]:
    until = after + timedelta(days=366)
    changes = clock_changes(zone_named(schedule.timezone), after, until)
    slots = (next_slot_from(schedule, moment) for moment in changes)
    notes = [_note(schedule, slot) for slot in slots if slot is not None]
    skips = [describe_skip(slot, schedule.timezone) for slot in skipped_in_gaps(schedule, after, until)]
    return list(dict.fromkeys(filter(None, notes))) + skips
