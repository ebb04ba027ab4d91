"""The options that commands share, and how their values are read: as JSON or, failing that, as plain text."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from cyclopts import Parameter, validators

from horae.cli.times import future
from horae.core.errors import Malformed

Flag = Parameter(negative=(), show_default=False)  # a switch without a --no- form
Positive = Parameter(validator=validators.Number(gte=1))
Several = Parameter(negative=())  # an option that may be repeated
Flat = Parameter(name="*")  # a dataclass whose fields are options of the command

JobName = Annotated[
    str, Parameter(help="Its id (job_…) or how that begins, or its key or name if only one job has that.")
]
StoreUrl = Annotated[str | None, Parameter(help="The store's address (HORAE_STORE).")]
Limit = Annotated[int, Positive, Parameter(help="The size of a page, up to 1000.")]
Owner = Annotated[str | None, Parameter(help="Another owner's, or '*' for everybody's; needs the scope admin.")]
Cursor = Annotated[str | None, Parameter(help="Where the last page ended.")]
ChangedParam = Annotated[list[str] | None, Several, Parameter(help="A parameter to change, as key=value.")]
ChangedParams = Annotated[str | None, Parameter(help="Parameters to change, as a JSON object.")]


def value_of(text: str) -> Any:
    """Read a text as JSON (`3`, `true`, `null`, `{"a": 1}`) if it is JSON, else return it as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs(given: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Read `["n=3", "who=Ann"]` as `{"n": 3, "who": "Ann"}`."""
    return {key: value_of(text) for key, text in (_split(pair, option) for pair in given or ())}


def text_pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """Read pairs with every value as text: labels are strings even if they look like numbers."""
    return dict(_split(pair, option) for pair in given or ())


def secret_pairs(given: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Read pairs; `key=@file` reads the value from a file, which keeps it out of the shell's history."""
    return {key: _secret(text, option) for key, text in (_split(pair, option) for pair in given or ())}


def _secret(text: str, option: str) -> Any:
    if not text.startswith("@"):
        return value_of(text)
    try:
        return Path(text[1:]).read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise Malformed(f"{option}: {exc}") from exc


def changes(given: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Read pairs as a merge patch; `retry.jitter=false` changes only `jitter` inside `retry`."""
    body: dict[str, Any] = {}
    for path, value in pairs(given, option).items():
        *outer, last = path.split(".")
        place = body
        for name in outer:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise Malformed(f"{option} {path}=…: {name} is also set as a whole; choose one of the two")
        place[last] = value
    return body


def json_object(text: str | None, option: str) -> dict[str, Any]:
    """Read a JSON object; None is an empty one."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise Malformed(f"{option} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise Malformed(f'{option} must be a JSON object such as {{"key": "value"}}')
    return value


def schedule_of(text: str, timezone: str | None = None) -> str | dict[str, Any]:
    """Return a schedule as the API takes it: as text, or as an object if it is JSON or has a time zone."""
    if text.lstrip().startswith("{"):
        value: str | dict[str, Any] = json_object(text, "the schedule")
    else:
        value = future(text, None if timezone is None else _zone(timezone)) or text
    if timezone is None:
        return value
    if isinstance(value, str):
        from horae.core.schedule.parse import parse_schedule, schedule_to_wire

        value = schedule_to_wire(parse_schedule(value, now=datetime.now(UTC)))
        value.pop("anchor", None)  # an interval is anchored by the server's clock, not by this machine's
    return {**value, "timezone": timezone}


def _zone(name: str) -> ZoneInfo:
    """Return a time zone by its name; raises InvalidSchedule."""
    from horae.core.schedule.zone_names import check_zone_name
    from horae.core.schedule.zones import zone_named

    check_zone_name(name, "/schedule/timezone")
    return zone_named(name)


def _split(pair: str, option: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not key or not equals:
        raise Malformed(f"{option} {pair!r} must be written as key=value")
    return key, text
