"""Computes the slots of a schedule independently of Horae's own evaluator, as far as possible.

Intervals are plain arithmetic. Cron expressions are evaluated by cronsim if it is installed and supports them.
Otherwise (aliases such as `@daily`, years, calendars, other rules for clock changes) Horae's own evaluator is used,
and the report says so.
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
class ReferenceSlots:
    """The slots of a job in microseconds: those that must be accounted for, and all that may exist."""

    expected: frozenset[int]
    possible: frozenset[int]
    evaluators: frozenset[str]
    unknown: tuple[tuple[float, float], ...] = ()  # periods of an interval with unknown anchor: any slot may exist

    def allow(self, slot: int) -> bool:
        """Whether such a slot may exist."""
        return slot in self.possible or any(start <= slot / MICRO <= end for start, end in self.unknown)


def micros(seconds: float) -> int:
    """Convert seconds to whole microseconds, in which slots are compared."""
    return round(seconds * MICRO)


def object_form(schedule: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schedule in its object form; an interval given as text has no anchor."""
    if not isinstance(schedule, str):
        return schedule
    form = schedule_to_wire(parse_schedule(schedule, now=datetime.fromtimestamp(0, UTC)))
    return {key: value for key, value in form.items() if key != "anchor"}


def slots(form: Mapping[str, Any], start: float, end: float) -> tuple[list[float], str]:
    """Return the slots with `start < slot <= end` and the evaluator that was used; an interval needs an anchor."""
    first = max(start, _moment(form, "starts_at", start) - 1 / MICRO)
    last = min(end, _moment(form, "ends_at", end + 1) - 1 / MICRO)
    if first >= last:
        return [], ARITHMETIC
    if form["type"] == "every":
        return _by_arithmetic(form, first, last, parse_timestamp(form["anchor"]).timestamp()), ARITHMETIC
    if form["type"] == "cron" and "dst" not in form and has_cronsim():
        found = _by_cronsim(form, first, last)
        if found is not None:
            return found, CRONSIM
    return list(_by_horae(form, first, last)), OWN


@cache
def has_cronsim() -> bool:
    return importlib.util.find_spec("cronsim") is not None


def _moment(form: Mapping[str, Any], name: str, otherwise: float) -> float:
    return parse_timestamp(form[name]).timestamp() if form.get(name) else otherwise


def _by_arithmetic(form: Mapping[str, Any], first: float, last: float, anchor: float) -> list[float]:
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
    found: list[float] = []
    for slot in iterator:
        moment = slot.timestamp()
        if moment > last:
            break
        if moment > first:
            found.append(moment)
    return found


def _by_horae(form: Mapping[str, Any], first: float, last: float) -> Iterator[float]:
    schedule = parse_schedule(dict(form), now=datetime.fromtimestamp(first, UTC))
    begin = datetime.fromtimestamp(first, UTC) + timedelta(microseconds=1)
    end = datetime.fromtimestamp(last, UTC) + timedelta(microseconds=1)
    return (slot.at.timestamp() for slot in slots_between(schedule, begin, end))
