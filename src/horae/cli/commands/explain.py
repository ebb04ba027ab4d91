"""`horae explain`: describe a schedule in words, with its next instants and the effects of daylight saving."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from horae.cli.arguments import Positive, schedule_of
from horae.cli.output import Column, Output, distance, print_json, print_lines, print_table
from horae.core.schedule.describe import describe
from horae.core.schedule.evaluate import refuse_never_firing
from horae.core.schedule.parse import parse_schedule
from horae.core.schedule.preview import Fire, preview, warnings
from horae.core.schedule.timestamps import rfc3339
from horae.core.schedule.types import Now, Schedule
from horae.core.schedule.zones import zone_named

COLUMNS = (Column(title="NEXT"), Column(title=""), Column(title="", rank=1, least=20))


def explain(
    schedule: str,
    /,
    *,
    tz: Annotated[str | None, Parameter(help="The time zone of the schedule (default UTC).")] = None,
    count: Annotated[int, Positive, Parameter(name=["--count", "-n"], help="How many instants to show.")] = 5,
    output: Output = "table",
) -> None:
    """Describe a schedule in words, and show when it fires next. Needs no server."""
    now = datetime.now(UTC)
    parsed = parse_schedule(schedule_of(schedule, tz), now=now)
    refuse_never_firing(parsed, now)
    fires, notes = preview(parsed, now, count), warnings(parsed, now)
    if output == "json":
        print_json(_document(parsed, fires, notes))
    else:
        _print(parsed, fires, notes, now)


def _print(schedule: Schedule, fires: Sequence[Fire], notes: Sequence[str], now: datetime) -> None:
    print_lines([describe(schedule), ""])
    zone = zone_named("UTC" if isinstance(schedule, Now) else schedule.timezone)
    rows = [(f"{f.at.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}", distance(f.at, now), f.note or "") for f in fires]
    print_table(COLUMNS, rows, empty="it runs once, as soon as it is created")
    if other_notes := [note for note in notes if note not in {fire.note for fire in fires}]:
        print_lines(["", *(f"note: {note}" for note in other_notes)])


def _document(schedule: Schedule, fires: Sequence[Fire], notes: Sequence[str]) -> dict[str, object]:
    """Return the same document as `POST /v1/schedules/preview`."""
    return {
        "description": describe(schedule),
        "fires": [{"at": rfc3339(f.at), **({"note": f.note} if f.note else {})} for f in fires],
        "warnings": list(notes),
    }
