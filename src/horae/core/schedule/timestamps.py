"""RFC 3339 timestamps: parsed strictly, written in UTC."""

import re
from datetime import UTC, datetime, timedelta

from horae.core.errors import InvalidSchedule

FIRST_YEAR, LAST_YEAR = 1970, 2999
TICK = timedelta(microseconds=1)  # the resolution of datetimes, so "from t on" is "after t - TICK"

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)


def rfc3339(moment: datetime) -> str:
    """The moment as text, in UTC, with microseconds only if they are not zero."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def parse_timestamp(text: str, pointer: str = "/schedule") -> datetime:
    """Parse a timestamp with an offset into an aware UTC datetime; digits after the microsecond are dropped."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise InvalidSchedule(
            f"{text[:40]!r} is not a timestamp; write it as 2027-01-31T09:00:00Z, or with an offset such as +01:00",
            pointer=pointer,
        )
    *parts, fraction, offset = found.groups()
    if offset is None:
        raise InvalidSchedule(f"the timestamp {text!r} needs an offset: end it with Z or +01:00", pointer=pointer)
    try:
        year, month, day, hour, minute, second = map(int, parts)
        micro = int((fraction or "").ljust(6, "0")[:6])
        moment = datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC) - _offset(offset)
    except (ValueError, OverflowError) as exc:
        raise InvalidSchedule(f"the timestamp {text!r} is not a valid time: {exc}", pointer=pointer) from exc
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise InvalidSchedule(f"the year of {text!r} is not between {FIRST_YEAR} and {LAST_YEAR}", pointer=pointer)
    return moment


def _offset(text: str) -> timedelta:
    if text in "Zz":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{text} is not an offset from UTC")
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)
