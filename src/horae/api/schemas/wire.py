"""Conversions of values to their form in JSON responses."""

from datetime import timedelta

from msgspec import Raw

_NULL = Raw(b"null")


def seconds_of(duration: timedelta | None) -> float | None:
    """Return a duration as a number of seconds."""
    return None if duration is None else duration.total_seconds()


def milliseconds_of(duration: timedelta | None) -> float | None:
    """Return a duration as a number of milliseconds, rounded to microseconds."""
    return None if duration is None else round(duration / timedelta(milliseconds=1), 3)


def raw_json(text: str | None) -> Raw:
    """Return JSON text for embedding in a response as it is; None becomes null."""
    return _NULL if text is None else Raw(text.encode())
