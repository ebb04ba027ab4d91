"""Schedules for tests of the core."""

from datetime import UTC, datetime
from typing import Any

from horae.core.schedule.parse import parse_schedule
from horae.core.schedule.preview import preview
from horae.core.schedule.types import Schedule

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read(value: Any, now: datetime = NOW) -> Schedule:
    return parse_schedule(value, now=now)


def cron(expression: str, **options: object) -> Schedule:
    return read({"type": "cron", "expression": expression, **options})


def upcoming(schedule: Schedule, count: int, after: datetime = NOW) -> list[str]:
    return [f"{fire.at:%Y-%m-%dT%H:%M:%S}" for fire in preview(schedule, after, count)]
