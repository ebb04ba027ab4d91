"""`horae workers`: show the live nodes, what they run and when they were last heard of."""

from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from horae.cli.arguments import Flag
from horae.cli.client import CommandClient, Document
from horae.cli.output import Column, Output, hint, print_page

app = App(name="workers", help="Show the nodes that run tasks, or all of them.")

COLUMNS = (
    Column(title="HOST:PROCESS", least=16, cut="middle"),
    Column(title="STATE"),
    Column(title="SLOTS", right=True),
    Column(title="SEEN"),
    Column(title="QUEUES", least=10, rank=1),
    Column(title="ROLES", least=10, rank=2),
    Column(title="STARTED", rank=3),
    Column(title="VERSION", rank=4),
    Column(title="ID", rank=5),
)


@app.default
@app.command
def ls(
    *,
    every: Annotated[bool, Flag, Parameter(name="--all", help="Also nodes that run no tasks.")] = False,
    output: Output = "table",
) -> int:
    """List the nodes that run tasks: slots in use, queues, and the last heartbeat. The exit code is 1 if none lives."""
    with CommandClient() as client:
        page = client.get("/v1/workers", role="any" if every else None)
    print_page(page, output, COLUMNS, row, empty="no workers; start one with `horae worker`")
    return 0 if any(node["alive"] for node in page["items"]) else 1


def row(node: Document) -> list[Any]:
    """Return the cells of a node."""
    works = "worker" in node["roles"]
    return [
        node["name"],
        Text("alive", style="green") if node["alive"] else Text("dead", style="red"),
        f"{node['running']}/{node['concurrency']}" if works else "",
        hint(node["last_seen_at"]),
        (",".join(node["queues"]) or "all") if works else "",
        ",".join(node["roles"]),
        hint(node["started_at"]),
        node["version"],
        node["id"],
    ]
