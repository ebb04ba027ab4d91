"""What the command line prints: tables, single things, JSON and errors, made for people at 80 columns and for pipes."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from horae.core.errors import HoraeError, Invalid

Format = Literal["table", "json"]
Output = Annotated[Format, Parameter(name=["--output", "-o"], help="How to print it.")]

NOTHING = "–"
SHORTEST = 12  # what a column that may lose its end keeps at least
STYLES = {
    **dict.fromkeys(("succeeded", "finished"), "green"),
    **dict.fromkeys(("running", "queued"), "cyan"),
    **dict.fromkeys(("retrying", "cancelling", "paused"), "yellow"),
    "failed": "red",
    **dict.fromkeys(("cancelled", "skipped"), "bright_black"),
}
UNITS = ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; where the terminal is too narrow, the one with the highest rank is left out first."""

    title: str
    rank: int = 0  # 0 is always shown
    shrinks: bool = False  # may lose its end
    right: bool = False


def console() -> Console:
    """A terminal gets what fits it; a pipe gets whole lines."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=10_000 if piped else None)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], *, empty: str) -> None:
    """Aligned columns without lines; `empty` is the sentence for no rows."""
    out = console()
    cells = [[_text(cell) for cell in row] for row in rows]
    if not cells:
        out.print(empty)
        return
    widths = [max(cell_len(c) for c in (column.title, *(row[i].plain for row in cells))) for i, column in enumerate(columns)]
    shown = _fitting(columns, widths, out.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i in shown:
        column = columns[i]
        table.add_column(
            column.title,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.right else "left",
            min_width=None if column.shrinks else widths[i],
        )
    for row in cells:
        table.add_row(*(row[i] for i in shown))
    out.print(table)


def print_fields(fields: Mapping[str, str | Text | None]) -> None:
    """One thing as aligned `label  value` lines; what is None is left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in fields.items():
        if value is not None:
            table.add_row(label, _text(value))
    console().print(table)


def print_note(sentence: str) -> None:
    """An aside for people, kept out of what a pipe reads."""
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(sentence, style="bright_black")


def print_error(error: HoraeError) -> None:
    """One readable block: the sentence, then each thing that is wrong and where."""
    lines = [f"error: {error}"]
    faults = error.faults if isinstance(error, Invalid) else ()
    for fault in faults:
        lines.append(f"  {fault.pointer}" if fault.detail == str(error) else f"  {fault.pointer}: {fault.detail}")
    print("\n".join(lines), file=sys.stderr)


# --- values in words ------------------------------------------------------------------------------------------------


def instant(text: str | None) -> datetime | None:
    """A timestamp of the API, as an aware datetime."""
    return None if text is None else datetime.fromisoformat(text)


def status(word: str | None) -> Text:
    return Text(NOTHING) if word is None else Text(word, style=STYLES.get(word, ""))


def when(text: str | None, now: datetime | None = None) -> str:
    """A timestamp in the local zone, with how far away it is."""
    moment = instant(text)
    if moment is None:
        return NOTHING
    now = now or datetime.now(UTC)
    return f"{local(moment, now)} · {distance(moment, now)}"


def local(moment: datetime, now: datetime) -> str:
    """In the local zone and as short as is clear today."""
    here, today = moment.astimezone(), now.astimezone()
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    if abs(moment - now) < timedelta(days=180):
        return f"{here:%a %d %b %H:%M}"
    return f"{here:%Y-%m-%d %H:%M}"


def hint(text: str | None, now: datetime | None = None) -> str:
    """How far away a timestamp is, alone: for narrow tables."""
    moment = instant(text)
    return NOTHING if moment is None else distance(moment, now or datetime.now(UTC))


def distance(moment: datetime, now: datetime) -> str:
    """`in 5 min`, `3 h ago`; the unit is the largest of which there are two."""
    far = abs(moment - now)
    if far < timedelta(seconds=1):
        return "now"
    amount = next((f"{far // unit} {name}" for unit, name in UNITS if far >= 2 * unit), f"{far.total_seconds():.0f} s")
    return f"in {amount}" if moment > now else f"{amount} ago"


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def took(run: Mapping[str, Any]) -> str:
    """How long a run's last attempt ran."""
    started, finished = instant(run.get("started_at")), instant(run.get("finished_at"))
    if started is None or finished is None:
        return NOTHING
    return milliseconds(max((finished - started).total_seconds(), 0) * 1000)


def one_line(value: object) -> str:
    """A JSON value in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    shown = list(range(len(columns)))
    while sum(_least(columns[i], widths[i]) for i in shown) + 2 * len(shown) > room:
        last = max(shown, key=lambda i: columns[i].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown


def _least(column: Column, width: int) -> int:
    return min(width, SHORTEST) if column.shrinks else width
