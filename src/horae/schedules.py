"""Schedules in code: `cron("0 9 * * mon-fri", tz="Europe/Paris")` and `every(minutes=5)`."""

from datetime import UTC, datetime, timedelta

from horae.core.schedule.parse import parse_schedule
from horae.core.schedule.timestamps import rfc3339
from horae.core.schedule.types import Schedule

# the default anchor: unlike the time of declaration, it is the same on every node and after every deploy
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cron(expression: str, *, tz: str = "UTC") -> Schedule:
    """Return a schedule by a cron expression in the local time of a zone; raises InvalidSchedule."""
    return parse_schedule({"type": "cron", "expression": expression, "timezone": tz}, now=EPOCH)


def every(interval: str | timedelta | None = None, /, *, anchor: datetime = EPOCH, **units: float) -> Schedule:
    """Return a schedule for an interval (`"5m"`, `timedelta(minutes=5)` or `minutes=5`), counted from the anchor."""
    if (interval is None) == (not units):
        raise TypeError('give one interval: every("5m"), every(timedelta(minutes=5)) or every(minutes=5)')
    if isinstance(interval, str):
        return parse_schedule(f"every {interval}", now=anchor)
    length = interval if interval is not None else timedelta(**units)
    return parse_schedule({"type": "every", "seconds": length.total_seconds(), "anchor": rfc3339(anchor)}, now=anchor)
