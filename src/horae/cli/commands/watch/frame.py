"""Draws a frame of `horae top`: as many lines of each part as the screen has room for."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from horae.cli.client import Document
from horae.cli.commands import runs
from horae.cli.commands.watch import queues
from horae.cli.commands.watch.snapshot import Pace, Snapshot
from horae.cli.output import NOTHING, Column, instant, milliseconds, seconds, table_lines

RUNNING = (
    Column(title="RUNNING", cut="id"),
    Column(title="JOB", least=12, cut="middle"),
    Column(title="FOR", right=True),
    Column(title="DONE", right=True, rank=1),
    Column(title="TRY", right=True, rank=2),
    Column(title="QUEUE", least=8, rank=3, cut="middle"),
    Column(title="TASK", least=10, rank=4, cut="middle"),
)
FAILED = (
    Column(title="FAILED", cut="id"),
    Column(title="JOB", least=12, cut="middle"),
    Column(title="ERROR", least=20),
    Column(title="DUE", rank=1),
)
LEAST_ROWS = 3  # of a table, with its title


def frame(snapshot: Snapshot, *, url: str, width: int, height: int) -> list[Text]:
    """Return the lines of a frame; the busiest queues, and the runs that run longest, come first."""
    head = _head(snapshot, url)
    busiest = sorted(snapshot.queues, key=lambda queue: (-queue["depth"], -queue["running"], queue["name"]))
    longest = sorted(snapshot.running, key=lambda run: run["started_at"] or "")
    tables = [
        table_lines(queues.COLUMNS, map(queues.row, busiest), width),
        table_lines(RUNNING, [_running(run, snapshot.at) for run in longest], width),
        table_lines(FAILED, map(_failed, snapshot.failed), width),
    ]
    shown = [table for table in tables if table] or [[Text("nothing waits, runs or has failed")]]
    rows = _shares([len(table) for table in shown], height - len(head) - len(shown))
    for table, count in zip(shown, rows, strict=True):
        head += [Text(""), *table[:count]]
    for line in head:
        line.truncate(width, overflow="ellipsis")
    return head[:height]


def _head(snapshot: Snapshot, url: str) -> list[Text]:
    alive = [node for node in snapshot.workers if node["alive"]]
    busy, slots = (sum(node[field] for node in alive) for field in ("running", "concurrency"))
    title = Text.assemble(("horae top", "bold"), f"  {snapshot.at.astimezone():%H:%M:%S}  {url}")
    workers = f"workers  {len(alive)} alive, {busy} of {slots} slots used"
    return [
        title,
        Text(_pace_words(snapshot.pace)),
        Text(workers, style="" if alive else "red"),
    ]


def _pace_words(pace: Pace) -> str:
    late = f"p50 {milliseconds(pace.lateness_p50_ms)}, p99 {milliseconds(pace.lateness_p99_ms)}"
    return (
        f"runs     {pace.due:.1f}/s due, {pace.succeeded:.1f}/s succeeded, {pace.failed:.1f}/s failed; "
        f"late {NOTHING if pace.lateness_p50_ms is None else late}"
    )


def _running(run: Document, now: datetime) -> list[str]:
    started = instant(run["started_at"])
    return [
        run["id"],
        run["name"] or run["key"] or run["task"],
        NOTHING if started is None else seconds(max((now - started).total_seconds(), 0)),
        f"{run['progress']:.0%}" if run["progress"] is not None else "",
        str(run["attempt"]),
        run["queue"],
        run["task"],
    ]


def _failed(run: Document) -> list[str | Text]:
    cells = runs.row(run)
    return [cells[0], cells[1], cells[2], cells[4]]


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return how many lines each table gets: small ones all of theirs, large ones equal parts of the rest."""
    shares = [0] * len(sizes)
    for left, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        part = max(room // (len(sizes) - left), 0)
        shares[place] = min(sizes[place], max(part, LEAST_ROWS))
        room -= shares[place]
    return shares
