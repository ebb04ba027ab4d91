"""The kinds of schedules: now, at an instant, at an interval, by a cron expression or by a calendar."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.errors import InvalidSchedule
from horae.core.schedule.dst import DEFAULT_DST, Dst, DstNote
from horae.core.values import Value

CalendarField = int | tuple[int, ...] | str  # 9, (9, 17) or a cron field such as "9-17/2"


class Now(Value, frozen=True):
    """Once, immediately."""


class At(Value, frozen=True, kw_only=True):
    """Once, at an instant; immediately if that has passed."""

    time: datetime  # aware, in UTC
    timezone: str = "UTC"  # only for display


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The options of every recurring schedule; its slots are those with `starts_at <= slot < ends_at`."""

    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter: timedelta = timedelta()
    dst: Dst = DEFAULT_DST


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(Recurrence):
    """Slots at `anchor` and every `interval` of real elapsed time after it; clock changes do not move them."""

    interval: timedelta
    anchor: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule(Recurrence):
    """Slots by a cron expression, in the local time of `timezone`."""

    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar(Recurrence):
    """Slots by named fields, which become a cron expression.

    Fields finer than the finest given take their lowest value, coarser ones any. Weekdays rank with the day; where both
    are given, both must match.
    """

    year: CalendarField | None = None
    month: CalendarField | None = None
    day: CalendarField | None = None
    weekdays: tuple[str, ...] = ()  # mon to sun
    hour: CalendarField | None = None
    minute: CalendarField | None = None
    second: CalendarField | None = None
    expression: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _expression(self))


@dataclass(frozen=True, slots=True)
class NotedSlot:
    """A slot, which is one nominal fire time in UTC, with a note if daylight saving affected it."""

    at: datetime
    note: DstNote | None = None


_LOWEST = ("0", "0", "0", "1", "1", "*")  # second, minute, hour, day, month, year

Recurring = Every | CronSchedule | Calendar
Schedule = Now | At | Recurring


def _expression(calendar: Calendar) -> str:
    """The calendar as seven cron fields: finest to coarsest, except for the weekday's place."""
    weekdays = ",".join(calendar.weekdays)
    day = "*" if calendar.day is None and weekdays else calendar.day
    values = (calendar.second, calendar.minute, calendar.hour, day, calendar.month, calendar.year)
    finest = next((rank for rank, value in enumerate(values) if value is not None), None)
    if finest is None:
        raise InvalidSchedule("a calendar needs at least one of year, month, day, weekdays, hour, minute, second")
    *finer, year = (_LOWEST[rank] if rank < finest else _text(value) for rank, value in enumerate(values))
    return " ".join((*finer, f"+{weekdays}" if weekdays else "*", year))


def _text(value: CalendarField | None) -> str:
    match value:
        case None:
            return "*"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
