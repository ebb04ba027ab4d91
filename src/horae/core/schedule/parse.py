"""Parses schedules from strings and JSON objects, strictly, and writes them back as JSON objects."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict, TypeGuard, TypeVar, assert_never

from horae.core.errors import InvalidSchedule
from horae.core.schedule.cron import parse_cron
from horae.core.schedule.cron_syntax import MAX_LENGTH, check_field
from horae.core.schedule.dst import Dst, Fold, Gap
from horae.core.schedule.timestamps import parse_timestamp, rfc3339
from horae.core.schedule.types import At, Calendar, CalendarField, CronSchedule, Every, Now, Recurrence, Schedule
from horae.core.schedule.zone_names import check_zone_name
from horae.core.wording.suggestions import did_you_mean

MIN_INTERVAL, MAX_INTERVAL = timedelta(seconds=0.1), timedelta(days=3653)
MAX_JITTER = timedelta(days=1)
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CALENDAR_FIELDS = ("year", "month", "day", "hour", "minute", "second")
OPTIONS = ("timezone", "starts_at", "ends_at", "jitter_seconds", "dst")
KEYS: Mapping[str, tuple[str, ...]] = {
    "now": ("timezone",),
    "at": ("time", "timezone"),
    "every": ("seconds", "anchor", *OPTIONS),
    "cron": ("expression", *OPTIONS),
    "calendar": (*CALENDAR_FIELDS, "weekdays", *OPTIONS),
}
UNITS: Mapping[str, float] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
FORMS = 'a schedule is "now", a timestamp such as 2027-01-31T09:00:00Z, "every 5m", a cron expression or an object'

_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]")  # how one begins
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([a-z]+) ?", re.ASCII)
Choice = TypeVar("Choice", bound=StrEnum)
Object = Mapping[str, object]


def parse_schedule(value: str | Object, *, now: datetime) -> Schedule:
    """Parse any form of a schedule; `now` is the anchor of an interval without one. Raises InvalidSchedule."""
    if isinstance(value, str):
        return _from_text(value, now)
    if isinstance(value, Mapping):
        return _from_object(value, now)
    raise InvalidSchedule(f"{FORMS}, not {_kind(value)}")


def recurs(value: str | Object) -> bool:
    """Whether a schedule recurs, by its form alone: it may be invalid all the same."""
    if isinstance(value, str):
        body = value.strip(" \t")
        return body != "now" and not _TIMESTAMP.match(body)
    return value.get("type") not in ("now", "at")


def schedule_to_wire(schedule: Schedule) -> dict[str, object]:
    """The object form without default values; `parse_schedule` turns it back into an equal schedule."""
    match schedule:
        case Now():
            return {"type": "now"}
        case At():
            return {"type": "at", "time": rfc3339(schedule.time), **_zone_to_wire(schedule.timezone)}
        case Every():
            every = {"type": "every", "seconds": _seconds(schedule.interval), "anchor": rfc3339(schedule.anchor)}
            return {**every, **_options_to_wire(schedule)}
        case CronSchedule():
            return {"type": "cron", "expression": schedule.expression, **_options_to_wire(schedule)}
        case Calendar():
            return {"type": "calendar", **_calendar_to_wire(schedule), **_options_to_wire(schedule)}
        case _:
            assert_never(schedule)


# --- the string forms -----------------------------------------------------------------------------------------------


def _from_text(text: str, now: datetime) -> Schedule:
    if len(text) > MAX_LENGTH:
        raise InvalidSchedule(f"a schedule has at most {MAX_LENGTH} characters; this one has {len(text)}")
    body = text.strip(" \t")
    if body == "now":
        return Now()
    if body == "every" or body.startswith("every "):
        return Every(interval=_interval(body.removeprefix("every").strip()), anchor=now)
    if _TIMESTAMP.match(body):
        return At(time=parse_timestamp(body))
    if not body or (body[0].isalpha() and len(body.split()) < 5):
        raise InvalidSchedule(f"{FORMS}, not {text[:40]!r}")
    return CronSchedule(expression=parse_cron(text).expression)


def _interval(text: str) -> timedelta:
    """Parse `5m`, `1h30m`, `10 minutes` or a bare unit such as `hour`."""
    if text in UNITS and len(text) > 2:
        return _checked_interval(timedelta(seconds=UNITS[text]), "/schedule")
    amounts = _AMOUNT.findall(text)
    units = [unit for _, unit in amounts]
    if not amounts or _AMOUNT.sub("", text) or not all(unit in UNITS for unit in units):
        raise InvalidSchedule(
            f"'every {text[:40]}' is not an interval; write it as every 30s, every 5m, every 1h30m or every hour"
        )
    seconds = sum(float(n) * UNITS[unit] for n, unit in amounts)
    too_long = 2 * MAX_INTERVAL.total_seconds()  # still fits into a timedelta, which larger numbers may not
    return _checked_interval(timedelta(seconds=min(seconds, too_long)), "/schedule")


def _checked_interval(interval: timedelta, pointer: str) -> timedelta:
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        shortest, longest = MIN_INTERVAL.total_seconds(), MAX_INTERVAL.days
        raise InvalidSchedule(f"an interval is from {shortest:g} seconds to {longest} days long", pointer=pointer)
    return interval


# --- the object form ------------------------------------------------------------------------------------------------


def _from_object(value: Object, now: datetime) -> Schedule:
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in KEYS:
        raise InvalidSchedule(f"type is one of {', '.join(KEYS)}{did_you_mean(kind, KEYS)}", pointer="/schedule/type")
    _refuse_unknown_keys(value, ("type", *KEYS[kind]), "/schedule", f"a schedule of type {kind}")
    given = {key: item for key, item in value.items() if item is not None}
    match kind:
        case "now":
            _timezone(given)
            return Now()
        case "at":
            return At(time=_moment(_required(given, "time"), "time"), timezone=_timezone(given))
        case "every":
            return _read_every(given, now)
        case "cron":
            return _read_cron(given)
        case _:
            return _read_calendar(given)


def _read_every(given: Object, now: datetime) -> Every:
    interval = _checked_interval(_duration(_required(given, "seconds"), "seconds"), "/schedule/seconds")
    options = _options(given)
    anchor = _optional_moment(given, "anchor") or options["starts_at"] or now
    return Every(interval=interval, anchor=anchor, **options)


def _read_cron(given: Object) -> CronSchedule:
    text = _text(_required(given, "expression"), "expression")
    try:
        expression = parse_cron(text).expression
    except InvalidSchedule as exc:
        raise InvalidSchedule(str(exc), pointer="/schedule/expression") from exc
    return CronSchedule(expression=expression, **_options(given))


def _read_calendar(given: Object) -> Calendar:
    fields = {name: _calendar_field(given[name], name) for name in CALENDAR_FIELDS if name in given}
    weekdays = _weekdays(given["weekdays"]) if "weekdays" in given else ()
    return Calendar(
        year=fields.get("year"),
        month=fields.get("month"),
        day=fields.get("day"),
        weekdays=weekdays,
        hour=fields.get("hour"),
        minute=fields.get("minute"),
        second=fields.get("second"),
        **_options(given),
    )


def _calendar_field(value: object, name: str) -> CalendarField:
    pointer = f"/schedule/{name}"
    if isinstance(value, str) or _is_field_number(value):
        field: CalendarField = value
    elif isinstance(value, list | tuple) and value and all(map(_is_field_number, value)):
        field = tuple(value)
    else:
        raise InvalidSchedule(f"{name} is a number, a list of numbers or a cron field, such as 1-5", pointer=pointer)
    try:
        check_field(name, ",".join(map(str, field)) if isinstance(field, tuple) else str(field))
    except InvalidSchedule as exc:
        raise InvalidSchedule(str(exc), pointer=pointer) from exc
    return field


def _is_field_number(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, not a bool, and short enough to be quoted in an error message."""
    return type(value) is int and abs(value) < 10_000


def _weekdays(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidSchedule(f"weekdays is a list of {', '.join(WEEK)}", pointer="/schedule/weekdays")
    for index, day in enumerate(value):
        if day not in WEEK:
            raise InvalidSchedule(
                f"a weekday is one of {', '.join(WEEK)}, not {str(day)[:40]!r}", pointer=f"/schedule/weekdays/{index}"
            )
    return tuple(day for day in WEEK if day in value)


class _Options(TypedDict):
    """The fields of Recurrence."""

    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    jitter: timedelta
    dst: Dst


def _options(given: Object) -> _Options:
    starts_at, ends_at = _optional_moment(given, "starts_at"), _optional_moment(given, "ends_at")
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        raise InvalidSchedule("ends_at must be after starts_at", pointer="/schedule/ends_at")
    return _Options(
        timezone=_timezone(given), starts_at=starts_at, ends_at=ends_at, jitter=_jitter(given), dst=_dst(given)
    )


def _jitter(given: Object) -> timedelta:
    jitter = _duration(given.get("jitter_seconds", 0), "jitter_seconds")
    if not timedelta() <= jitter <= MAX_JITTER:
        raise InvalidSchedule(
            f"jitter_seconds is from 0 to {MAX_JITTER.total_seconds():g}", pointer="/schedule/jitter_seconds"
        )
    return jitter


def _dst(given: Object) -> Dst:
    value = given.get("dst", {})
    if not isinstance(value, Mapping):
        raise InvalidSchedule(f"dst is an object with gap and fold, not {_kind(value)}", pointer="/schedule/dst")
    _refuse_unknown_keys(value, ("gap", "fold"), "/schedule/dst", "dst")
    return Dst(gap=_choice(value.get("gap"), Gap, "gap"), fold=_choice(value.get("fold"), Fold, "fold"))


def _choice(value: object, choices: type[Choice], name: str) -> Choice | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in list(choices):
        raise InvalidSchedule(f"dst.{name} is one of {', '.join(choices)}", pointer=f"/schedule/dst/{name}")
    return choices(value)


def _timezone(given: Object) -> str:
    name = _text(given.get("timezone", "UTC"), "timezone")
    check_zone_name(name, "/schedule/timezone")
    return name


# --- single values --------------------------------------------------------------------------------------------------


def _refuse_unknown_keys(value: Object, known: Collection[str], pointer: str, subject: str) -> None:
    for key in value:
        if key not in known:
            name = str(key)[:64]
            detail = f"{subject} has no {name!r}{did_you_mean(name, known) or '; it has ' + ', '.join(known)}"
            raise InvalidSchedule(detail, pointer=f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")


def _required(given: Object, name: str) -> object:
    if name not in given:
        raise InvalidSchedule(f"a schedule of type {given['type']} needs {name}", pointer=f"/schedule/{name}")
    return given[name]


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidSchedule(f"{name} is a string, not {_kind(value)}", pointer=f"/schedule/{name}")
    return value


def _duration(value: object, name: str) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN does not equal itself
        raise InvalidSchedule(f"{name} is a number of seconds, not {_kind(value)}", pointer=f"/schedule/{name}")
    try:
        return timedelta(seconds=value)
    except OverflowError as exc:
        raise InvalidSchedule(f"{name} is too large", pointer=f"/schedule/{name}") from exc


def _moment(value: object, name: str) -> datetime:
    return parse_timestamp(_text(value, name), f"/schedule/{name}")


def _optional_moment(given: Object, name: str) -> datetime | None:
    return _moment(given[name], name) if name in given else None


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def _options_to_wire(schedule: Recurrence) -> dict[str, object]:
    dst = {"gap": schedule.dst.gap, "fold": schedule.dst.fold}
    options = {
        "starts_at": schedule.starts_at and rfc3339(schedule.starts_at),
        "ends_at": schedule.ends_at and rfc3339(schedule.ends_at),
        "jitter_seconds": _seconds(schedule.jitter) or None,
        "dst": {name: choice.value for name, choice in dst.items() if choice is not None} or None,
    }
    return _zone_to_wire(schedule.timezone) | {name: value for name, value in options.items() if value is not None}


def _zone_to_wire(name: str) -> dict[str, object]:
    return {} if name == "UTC" else {"timezone": name}


def _calendar_to_wire(calendar: Calendar) -> dict[str, object]:
    values = {name: getattr(calendar, name) for name in (*CALENDAR_FIELDS, "weekdays")}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None and value != ()
    }


def _seconds(duration: timedelta) -> int | float:
    seconds = duration.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds
