"""JSON schemas of schedules, which the core parses and which therefore have no msgspec types."""

from collections.abc import Mapping
from typing import Any

from horae.core.schedule.cron_syntax import ALIASES, MAX_LENGTH
from horae.core.schedule.parse import CALENDAR_FIELDS, KEYS, MAX_INTERVAL, MAX_JITTER, MIN_INTERVAL, WEEK
from horae.core.schedule.timestamps import FIRST_YEAR, LAST_YEAR

Schema = dict[str, Any]

INSTANT: Schema = {"type": "string", "format": "date-time"}
_LIMITS: Mapping[str, tuple[int, int]] = {
    "year": (FIRST_YEAR, LAST_YEAR),
    "month": (1, 12),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_CRON: Schema = {
    "type": "string",
    "format": "cron",
    "maxLength": MAX_LENGTH,
    "description": "5 fields; 6 with seconds first; 7 with a year last",
    "examples": ["0 9 * * mon-fri"],
}


def optional(schema: Schema, **keywords: Any) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}], **keywords}


_FIELDS: Mapping[str, Schema] = {
    "time": INSTANT,
    "seconds": {
        "type": "number",
        "minimum": MIN_INTERVAL.total_seconds(),
        "maximum": MAX_INTERVAL.total_seconds(),
    },
    "anchor": optional(
        INSTANT, description="one of the times, from which the others are counted; default the creation of the job"
    ),
    "expression": _CRON,
    "timezone": optional({"type": "string", "format": "timezone", "examples": ["Europe/Paris"]}, default="UTC"),
    "starts_at": optional(INSTANT, description="inclusive: the first slot may be at this instant"),
    "ends_at": optional(INSTANT, description="exclusive: the last slot is before this instant"),
    "jitter_seconds": optional(
        {"type": "number", "minimum": 0, "maximum": MAX_JITTER.total_seconds()},
        description="the maximum of a random delay",
    ),
    "dst": optional(
        {
            "type": "object",
            "properties": {
                "gap": optional({"enum": ["run_after", "skip"]}),
                "fold": optional({"enum": ["first", "second", "both"]}),
            },
            "additionalProperties": False,
        },
        description="what to do with times that a clock change skips (gap) or repeats (fold)",
    ),
    "weekdays": optional({"type": "array", "items": {"enum": list(WEEK)}, "minItems": 1}),
}


def _calendar_field(name: str) -> Schema:
    lowest, highest = _LIMITS[name]
    number = {"type": "integer", "minimum": lowest, "maximum": highest}
    numbers = {"type": "array", "items": number, "minItems": 1}
    return optional({"anyOf": [number, numbers, {"type": "string", "format": f"cron-{name}"}]})


_ALL_FIELDS = {**_FIELDS, **{name: _calendar_field(name) for name in CALENDAR_FIELDS}}
_NEEDED = {"at": ["time"], "every": ["seconds"], "cron": ["expression"]}


def _form(kind: str) -> Schema:
    form: Schema = {
        "type": "object",
        "properties": {"type": {"const": kind}, **{name: _ALL_FIELDS[name] for name in KEYS[kind]}},
        "required": ["type", *_NEEDED.get(kind, [])],
        "additionalProperties": False,
    }
    return form


SCHEDULE_SCHEMAS: Mapping[str, Schema] = {
    "ScheduleObject": {
        "title": "ScheduleObject",
        "description": "A schedule as an object.",
        "oneOf": [_form(kind) for kind in KEYS],
    },
    "Schedule": {
        "title": "Schedule",
        "description": "When a job runs: a string for simple cases, an object otherwise.",
        "anyOf": [
            {"const": "now"},
            INSTANT,
            {
                "type": "string",
                "pattern": "^every [1-9][0-9]{0,3} ?(s|m|h|d|seconds|minutes|hours|days)$",
                "description": "an interval; `every 1h30m` and `every hour` are also accepted",
            },
            {"enum": list(ALIASES)},
            _CRON,
            {"$ref": "#/components/schemas/ScheduleObject"},
        ],
        "examples": ["now", "every 5m", "0 9 * * mon-fri", {"type": "every", "seconds": 300}],
    },
}
