"""Reads times as people write them: `1h` ago, `yesterday`, `2026-01-31`, `14:30`, in the time zone of this machine."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Annotated

from cyclopts import Parameter

from horae.core.errors import Malformed

FORMS = "10m, 2h30m, yesterday, 14:30, 2026-01-31, 2026-01-31 14:30 or 2026-01-31T14:30:00Z"
UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
A_DAY = timedelta(days=1)

_AMOUNT = re.compile(r"(\d{1,6}) ?([a-z]+) ?", re.ASCII)
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)

Since = Annotated[
    str | None,
    Parameter(help="From this time on: 1h (ago), yesterday, 14:30, 2026-01-31 or a timestamp."),
]


def past(text: str, option: str, now: datetime | None = None) -> str:
    """Return a time as a timestamp; a duration counts back from now, and a time of day is the last one.

    A day is its first instant. Times without an offset are in the time zone of this machine.
    """
    here = (now or datetime.now(UTC)).astimezone()
    try:
        return _wire(_moment(_words(text).removesuffix(" ago"), here, None, ahead=False))
    except (ValueError, OverflowError) as exc:
        raise Malformed(f"{option} {text!r} is not a time; write {FORMS}") from exc


def future(text: str, zone: tzinfo | None = None, now: datetime | None = None) -> str | None:
    """Return a time to come, such as `in 10m`, `tomorrow 9:00` or `14:30`, as a timestamp; None if it is none."""
    words = _words(text)
    if words == "now" or _duration(words) is not None or _has_offset(words):
        return None
    try:
        return _wire(_moment(words.removeprefix("in "), (now or datetime.now(UTC)).astimezone(zone), zone, ahead=True))
    except (ValueError, OverflowError):
        return None


def _words(text: str) -> str:
    return " ".join(text.lower().split())


def _has_offset(words: str) -> bool:
    try:
        return datetime.fromisoformat(words.upper()).tzinfo is not None
    except ValueError:
        return False


def _wire(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _moment(words: str, now: datetime, zone: tzinfo | None, *, ahead: bool) -> datetime:
    """Return the time that the words mean; raises ValueError."""
    if words == "now":
        return now
    if (far := _duration(words)) is not None:
        return now + far if ahead else now - far
    if _CLOCK.fullmatch(words):
        return _nearest(_clock(words), now, zone, ahead=ahead)
    day, _, rest = words.partition(" ")
    if day in DAYS:
        return _local(now.date() + DAYS[day] * A_DAY, _clock(rest), zone)
    moment = datetime.fromisoformat(words.upper())
    return _local(moment.date(), moment.time(), zone) if moment.tzinfo is None else moment


def _duration(words: str) -> timedelta | None:
    """Return the length of `2h30m`; None if it is not a duration."""
    amounts = _AMOUNT.findall(words)
    if not amounts or _AMOUNT.sub("", words) or any(unit not in UNITS for _, unit in amounts):
        return None
    return sum((int(count) * UNITS[unit] for count, unit in amounts), timedelta())


def _nearest(clock: time, now: datetime, zone: tzinfo | None, *, ahead: bool) -> datetime:
    """Return the next time with this time of day, or the last one."""
    today = _local(now.date(), clock, zone)
    if ahead:
        return today if today > now else _local(now.date() + A_DAY, clock, zone)
    return today if today <= now else _local(now.date() - A_DAY, clock, zone)


def _clock(words: str) -> time:
    """Return a time of day; none is midnight."""
    if not words:
        return time()
    found = _CLOCK.fullmatch(words)
    if found is None:
        raise ValueError(words)
    hour, minute, second = map(int, found.groups("0"))
    return time(hour, minute, second)


def _local(day: date, clock: time, zone: tzinfo | None) -> datetime:
    """Return a time of a day in a zone; None is the zone of this machine."""
    naive = datetime.combine(day, clock)
    return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
