"""`horae queues`: show the queues, pause, resume or limit one."""

from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from horae.cli.arguments import Cursor, Limit, Owner
from horae.cli.client import CommandClient, Document
from horae.cli.completers import queue_names
from horae.cli.output import NOTHING, Column, Output, milliseconds, print_page, print_result, seconds, status
from horae.client.call import path_to
from horae.core.errors import Malformed

app = App(name="queues", help="Show the queues, and pause, resume or limit one.")

QueueName = Annotated[str, Parameter(help="The name of the queue.", completer=queue_names)]
COLUMNS = (
    Column(title="QUEUE", least=12, cut="middle"),
    Column(title="WAITING", right=True),
    Column(title="OLDEST", right=True),
    Column(title="RUNNING", right=True),
    Column(title="LIMIT", right=True),
    Column(title="LATE P99", right=True, rank=1),
    Column(title="STATE"),
)
COUNTED = 10_000  # waiting runs up to which the server counts


@app.default
@app.command(sort_key=0)
def ls(*, owner: Owner = None, limit: Limit = 1000, cursor: Cursor = None, output: Output = "table") -> None:
    """List queues: runs that are due and wait, since when the oldest waits, runs that run, and the limit."""
    with CommandClient() as client:
        page = client.page("/v1/queues", owner=owner, limit=limit, cursor=cursor)
    print_page(page, output, COLUMNS, row, empty="no queues: nothing waits, and none has settings")


@app.command(sort_key=1)
def pause(queue: QueueName, /, *, output: Output = "table") -> None:
    """Start no more runs of a queue; those that a worker already holds go on. Needs the scope admin."""
    _change(queue, {"paused": True}, output)


@app.command(sort_key=2)
def resume(queue: QueueName, /, *, output: Output = "table") -> None:
    """Start the runs of a paused queue again. Needs the scope admin."""
    _change(queue, {"paused": False}, output)


@app.command(name="set", sort_key=3)
def set_(
    queue: QueueName,
    /,
    *,
    concurrency: Annotated[
        str | None, Parameter(help="How many of its runs all workers together run at once; none removes the limit.")
    ] = None,
    paused: Annotated[Literal["yes", "no"] | None, Parameter(help="Whether it is paused.")] = None,
    output: Output = "table",
) -> None:
    """Change the settings of a queue, which bind every worker and are kept. Needs the scope admin."""
    changes: Document = {} if concurrency is None else {"concurrency": _limit(concurrency)}
    if paused is not None:
        changes["paused"] = paused == "yes"
    if not changes:
        raise Malformed("say what to change: --concurrency or --paused")
    _change(queue, changes, output)


def row(queue: Document) -> list[Any]:
    """Return the cells of a queue."""
    depth = queue["depth"]
    return [
        queue["name"],
        f"{depth}+" if depth >= COUNTED else str(depth),
        seconds(queue["oldest_age_seconds"]),
        str(queue["running"]),
        str(queue["concurrency"] or NOTHING),
        milliseconds(queue["lateness_p99_ms"]),
        status("paused" if queue["paused"] else "open"),
    ]


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise Malformed(f"--concurrency {text!r} must be a number from 1, or none")
    return int(text)


def _change(queue: str, changes: Document, output: str) -> None:
    with CommandClient() as client:
        changed = client.patch(path_to("queues", queue), changes)
    limit = str(changed["concurrency"] or "none")
    state = status("paused" if changed["paused"] else "open")
    print_result(
        changed,
        {
            "queue": changed["name"],
            "state": state,
            "limit": limit,
            "waiting": str(changed["depth"]),
            "running": str(changed["running"]),
        },
        output,
    )
