"""Prints tables, single things, JSON and errors, for people at 80 columns and for pipes.

Names, results and errors are what others wrote: whatever is printed goes through `printable`, so that none of it
controls the terminal.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from horae.core.errors import Fault, HoraeError, Invalid
from horae.core.wording.printable import printable, printable_json

Format = Literal["table", "json"]
Output = Annotated[Format, Parameter(name=["--output", "-o"], help="Print a table for people, or JSON.")]

NOTHING = "–"
PIPE_WIDTH = 10_000
GAP = 2  # blanks between columns
LEAST_ID = 20  # characters of an id: its milliseconds and some random digits
SPARE_DIGITS = 2  # beyond those that tell the ids of one table apart, for ids that are not in it
STYLES = {
    **dict.fromkeys(("succeeded", "finished"), "green"),
    **dict.fromkeys(("running", "queued"), "cyan"),
    **dict.fromkeys(("retrying", "cancelling", "paused"), "yellow"),
    "failed": "red",
    **dict.fromkeys(("cancelled", "skipped"), "bright_black"),
}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
UNITS = ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; when the terminal is too narrow, the column with the highest rank is left out first."""

    title: str
    rank: int = 0  # 0 is always shown
    least: int | None = None  # the width down to which it may be truncated; None: not at all
    right: bool = False
    cut: Literal["end", "middle", "id"] = "end"  # where it is truncated; an id keeps the digits that tell it apart


OWNER = Column(title="OWNER", rank=1, least=8, cut="middle")  # of lists with what several owners have


def console() -> Console:
    """Return a console that fits lines to a terminal, and leaves them whole in a pipe."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH if piped else None)


def print_json(value: object) -> None:
    print(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: object) -> None:
    """Print one of many values, each in a line of its own, at once."""
    print(printable_json(json.dumps(value, ensure_ascii=False)), flush=True)


def print_text(text: str = "", *, flush: bool = False) -> None:
    """Print lines as they are."""
    print(printable(text), flush=flush)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], *, empty: str) -> None:
    """Print aligned columns; `empty` is the sentence for no rows."""
    out = console()
    for line in table_lines(columns, rows, out.width) or [Text(empty)]:
        out.print(line, no_wrap=True, overflow="ignore", crop=False)


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], room: int) -> list[Text]:
    """Return the lines of a table, with its titles; none without rows."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    if not cells:
        return []
    titles = [Text(column.title, style="bold") for column in columns]
    columns = [_told_apart(column, [row[i].plain for row in cells]) for i, column in enumerate(columns)]
    widths = _widths(columns, [titles, *cells], room)
    return [_line(columns, row, widths) for row in [titles, *cells]]


def print_cells(widths: Sequence[int], cells: Sequence[str]) -> None:
    """Print one line of a list that has no end; on a terminal each cell has its width, and the last what remains."""
    out = console()
    texts = [_cell(cell).copy() for cell in cells]
    for place, width in enumerate(widths):
        if out.width < PIPE_WIDTH:
            texts[place] = _shortened(texts[place], width, "middle")
        texts[place].align("left", max(width, texts[place].cell_len))
    line = Text(" " * GAP).join(texts)
    line.rstrip()
    out.print(line, no_wrap=True, overflow="ellipsis")
    out.file.flush()


def print_fields(fields: Mapping[str, str | Text | None]) -> None:
    """Print one thing as aligned `label  value` lines; fields that are None are left out."""
    out = console()
    shown = {printable(label): _text(value) for label, value in fields.items() if value is not None}
    width = max(map(cell_len, shown), default=0) + GAP
    for label, value in shown.items():
        lines = Text("\n" + " " * width).join(value.split("\n"))  # so that no line of a value poses as a field
        out.print(Text.assemble((label.ljust(width), "bright_black"), lines), soft_wrap=True)


def print_result(document: object, fields: Mapping[str, str | Text | None], output: str) -> None:
    """Print the result of a command: the whole document as JSON, or its fields for people."""
    if output == "json":
        print_json(document)
    else:
        print_fields(fields)


def print_lines(lines: Iterable[str]) -> None:
    out = console()
    for line in lines:
        out.print(printable(line))


def print_page(
    page: Mapping[str, Any],
    output: str,
    columns: Sequence[Column],
    row: Callable[[Any], Sequence[str | Text]],
    *,
    empty: str,
) -> None:
    """Print one page of a list, and how to get the next one."""
    if output == "json":
        print_json(page)
        return
    print_table(columns, map(row, page["items"]), empty=empty)
    if page["next_cursor"]:
        print_note(f"more with --cursor {page['next_cursor']}")


def print_note(sentence: str) -> None:
    """Print a remark for people to stderr, so that it does not get into a pipe."""
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(
        _block(sentence), style="bright_black"
    )


def confirmed(question: str) -> bool:
    """Ask a question on the terminal; only `y` and `yes` confirm it."""
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_error(error: HoraeError) -> None:
    """Print an error to stderr: its message, then each fault and where it is."""
    faults = error.faults if isinstance(error, Invalid) else ()
    lines = [f"error: {error}", *(_fault(fault, str(error)) for fault in faults)]
    print("\n".join(map(_block, lines)), file=sys.stderr)


# --- formatting values ----------------------------------------------------------------------------------------------


def instant(text: str | None) -> datetime | None:
    """Parse a timestamp of the API as an aware datetime."""
    return None if text is None else datetime.fromisoformat(text)


def status(word: str | None) -> Text:
    return Text(NOTHING) if word is None else Text(word, style=STYLES.get(word, ""))


def when(text: str | None, now: datetime | None = None) -> str:
    """Format a timestamp in the local zone, with how far away it is."""
    moment = instant(text)
    if moment is None:
        return NOTHING
    now = now or datetime.now(UTC)
    return f"{local(moment, now)} · {distance(moment, now)}"


def local(moment: datetime, now: datetime) -> str:
    """Format an instant in the local zone, with its date only if it is not today."""
    here, today = moment.astimezone(), now.astimezone()
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    if abs(moment - now) < timedelta(days=180):
        return f"{here:%a %d %b %H:%M}"
    return f"{here:%Y-%m-%d %H:%M}"


def day_time(moment: datetime) -> str:
    """Format a time in the local zone, with its date only if it is not today."""
    return local(moment, datetime.now(UTC))


def in_local_time(sentence: str) -> str:
    """Return a sentence of the server with the timestamp that it ends with as people here read it."""
    begin, at, end = sentence.rpartition(" at ")
    if _TIMESTAMP.fullmatch(end) is None:
        return sentence
    return f"{begin}{at}{when(end)}"


def hint(text: str | None, now: datetime | None = None) -> str:
    """Format how far away a timestamp is, for narrow tables."""
    moment = instant(text)
    return NOTHING if moment is None else distance(moment, now or datetime.now(UTC))


def distance(moment: datetime, now: datetime) -> str:
    """Format a distance as `in 5 min` or `3 h ago`, in the largest unit of which there are at least two."""
    far = abs(moment - now)
    if far < timedelta(seconds=1):
        return "now"
    return f"in {_amount(far)}" if moment > now else f"{_amount(far)} ago"


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def seconds(value: float | None) -> str:
    """Format a length of time in its largest unit of which there are at least two."""
    return NOTHING if value is None else _amount(timedelta(seconds=value))


def took(run: Mapping[str, Any]) -> str:
    """Format how long the last attempt of a run took."""
    started, finished = instant(run.get("started_at")), instant(run.get("finished_at"))
    if started is None or finished is None:
        return NOTHING
    return milliseconds(max((finished - started).total_seconds(), 0) * 1000)


def _amount(far: timedelta) -> str:
    return next((f"{far // unit} {name}" for unit, name in UNITS if far >= 2 * unit), f"{far.total_seconds():.0f} s")


def one_line(value: object) -> str:
    """Format a JSON value in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: str | Text) -> Text:
    if isinstance(value, str):
        return Text(printable(value))
    return value if value.plain == printable(value.plain) else Text(printable(value.plain), style=value.style)


def _cell(value: str | Text) -> Text:
    """Return a value in one line."""
    text = _text(value)
    return text if text.plain.isprintable() else Text(" ".join(text.plain.split()), style=text.style)


def _block(text: str) -> str:
    """Return text whose further lines are indented, so that none poses as another message."""
    return printable(text).replace("\n", "\n  ")


def _fault(fault: Fault, sentence: str) -> str:
    """Format where a fault is, and what it is unless the message says that already."""
    return f"  at {fault.pointer}" if fault.detail == sentence else f"  at {fault.pointer}: {fault.detail}"


def _line(columns: Sequence[Column], row: Sequence[Text], widths: Mapping[int, int]) -> Text:
    line = Text()
    for i, width in widths.items():
        cell = _shortened(row[i], width, columns[i].cut)
        cell.align("right" if columns[i].right else "left", width)
        line.append_text(cell).append(" " * GAP)
    line.rstrip()
    return line


def _told_apart(column: Column, texts: Sequence[str]) -> Column:
    """Return a column of ids with the width down to which none of them begins like another."""
    if column.cut != "id":
        return column
    alike = (_alike(one, other) for one, other in pairwise(sorted(set(texts))))
    return replace(column, least=max(LEAST_ID, max(alike, default=0) + SPARE_DIGITS))


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _shortened(cell: Text, width: int, cut: str) -> Text:
    """Return a cell that is no wider; an id is cut without a mark, so that it can be copied."""
    short = cell.copy()
    if cell.cell_len > width and cut == "id":
        short.truncate(width, overflow="crop")
    elif cell.cell_len > width and cut == "middle":
        short = Text(_without_middle(cell.plain, width), style=cell.style)
    else:
        short.truncate(width, overflow="ellipsis")
    return short


def _without_middle(text: str, width: int) -> str:
    """Return the beginning and the end of a text that is wider."""
    start = len(text)
    while cell_len(text[start - 1 :]) <= (width - 1) // 2:
        start -= 1
    end = text[start:]
    return f"{set_cell_size(text, width - 1 - cell_len(end))}…{end}"


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]], room: int) -> dict[int, int]:
    """Return the columns to show, with their widths.

    Columns without any text are left out. Others are as wide as their text, and narrower if they do not all fit.
    """
    filled = [i for i in range(len(columns)) if any(row[i].cell_len for row in rows[1:])]
    widths = {i: max(row[i].cell_len for row in rows) for i in filled}
    while (excess := sum(widths.values()) + GAP * (len(widths) - 1) - room) > 0:
        spare = {i: max(widths[i] - (columns[i].least or widths[i]), 0) for i in widths}
        if sum(spare.values()) >= excess:
            return _shrink(columns, widths, spare, excess)
        last = max(widths, key=lambda i: columns[i].rank)
        if columns[last].rank == 0:
            break
        del widths[last]
    return widths


def _shrink(
    columns: Sequence[Column], widths: Mapping[int, int], spare: Mapping[int, int], excess: int
) -> dict[int, int]:
    """Shrink ids, which say nothing, and then the widest columns, so that short texts stay whole."""
    shrunk = dict(widths)
    for place in widths:
        if columns[place].cut == "id":
            shrunk[place] -= min(spare[place], excess)
            excess -= widths[place] - shrunk[place]
    for _ in range(excess):
        widest = max((i for i in shrunk if widths[i] - shrunk[i] < spare[i]), key=shrunk.__getitem__)
        shrunk[widest] -= 1
    return shrunk
