"""The slots of a schedule by other code than Horae's own, as far as there is any: the checker's second opinion.

Intervals are plain arithmetic here. Cron expressions go to cronsim where that is installed and knows the expression;
what it does not know (names such as `@daily`, a year field, calendars, other rules for clock changes), or where it is
not installed, Horae's own evaluator tells, and the report says so.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from horae.core.schedule.evaluate import slots_between
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.timestamps import parse_timestamp

MICRO = 1_000_000
OWN, CRONSIM, ARITHMETIC = "Horae's own evaluator", "cronsim", "arithmetic"


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots in microseconds: those that must be accounted for, and all that may be."""

    expected: frozenset[int]
    possible: frozenset[int]
    evaluators: frozenset[str]
    unknown: tuple[tuple[float, float], ...] = ()  # times of intervals whose anchor nobody wrote down: any slot may be

    def allow(self, slot: int) -> bool:
        """Whether there may be such a slot."""
        return slot in self.possible or any(start <= slot / MICRO <= end for start, end in self.unknown)


def micros(seconds: float) -> int:
    """Slots are compared as whole microseconds."""
    return round(seconds * MICRO)


def object_form(schedule: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """A schedule as an object; an interval that was asked for in words has no anchor in it."""
    if not isinstance(schedule, str):
        return schedule
    form = schedule_to_wire(parse_schedule(schedule, now=datetime.fromtimestamp(0, UTC)))
    return {key: value for key, value in form.items() if key != "anchor"}


def slots(form: Mapping[str, Any], start: float, end: float) -> tuple[list[float], str]:
    """The slots with `start < slot <= end`, and who says so; an interval needs an anchor."""
    first = max(start, _moment(form, "starts_at", start) - 1 / MICRO)
    last = min(end, _moment(form, "ends_at", end + 1) - 1 / MICRO)
    if first >= last:
        return [], ARITHMETIC
    if form["type"] == "every":
        return _every(form, first, last, parse_timestamp(form["anchor"]).timestamp()), ARITHMETIC
    if form["type"] == "cron" and "dst" not in form and is_cronsim_here():
        told = _by_cronsim(form, first, last)
        if told is not None:
            return told, CRONSIM
    return list(_by_ourselves(form, first, last)), OWN


@cache
def is_cronsim_here() -> bool:
    return importlib.util.find_spec("cronsim") is not None


def _moment(form: Mapping[str, Any], name: str, otherwise: float) -> float:
    return parse_timestamp(form[name]).timestamp() if form.get(name) else otherwise


def _every(form: Mapping[str, Any], first: float, last: float, anchor: float) -> list[float]:
    step, begin = micros(form["seconds"]), micros(anchor)
    number = max((micros(first) - begin) // step + 1, 0)
    last_number = (micros(last) - begin) // step
    return [(begin + step * each) / MICRO for each in range(number, last_number + 1)]


def _by_cronsim(form: Mapping[str, Any], first: float, last: float) -> list[float] | None:
    from cronsim import CronSim, CronSimError

    zone = ZoneInfo(form.get("timezone", "UTC"))
    begin = datetime.fromtimestamp(first, zone)
    try:
        iterator = CronSim(form["expression"], begin)
    except CronSimError:
        return None
    told: list[float] = []
    for slot in iterator:
        moment = slot.timestamp()
        if moment > last:
            break
        if moment > first:
            told.append(moment)
    return told


def _by_ourselves(form: Mapping[str, Any], first: float, last: float) -> Iterator[float]:
    schedule = parse_schedule(dict(form), now=datetime.fromtimestamp(first, UTC))
    begin = datetime.fromtimestamp(first, UTC) + timedelta(microseconds=1)
    end = datetime.fromtimestamp(last, UTC) + timedelta(microseconds=1)
    return (slot.at.timestamp() for slot in slots_between(schedule, begin, end))
