"""`horae dlq`: list dead letters, requeue or discard some or all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from horae.cli.arguments import Cursor, Flag, Limit, Several, json_object, pairs
from horae.cli.client import CommandClient, Document, run_id
from horae.cli.commands import runs
from horae.cli.output import Column, Output, hint, print_fields, print_json, print_page
from horae.cli.progress import progress_bar
from horae.core.errors import Malformed

app = App(name="dlq", help="List, requeue or discard failed runs (dead letters).")

Ids = Annotated[list[str] | None, Parameter(help="Ids (run_…), instead of the options.")]
Everything = Annotated[bool, Flag, Parameter(name="--all", help="All that you own.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The options that select dead letters."""

    job: Annotated[str | None, Parameter(help="Only those of this job: its id, key or name.")] = None
    task: Annotated[str | None, Parameter(help="Only those of this task.")] = None
    queue: Annotated[str | None, Parameter(help="Only those of this queue.")] = None
    error: Annotated[str | None, Parameter(help="Only those that ended with this type of error.")] = None
    start_time: Annotated[str | None, Parameter(help="Due from this timestamp on.")] = None
    end_time: Annotated[str | None, Parameter(help="Due before this timestamp.")] = None

    def query(self, client: CommandClient) -> dict[str, str]:
        """Return the filters as the API takes them; empty if none is given."""
        given = {
            "job_id": None if self.job is None else client.job_id(self.job),
            "task": self.task,
            "queue": self.queue,
            "error": self.error,
            "start_time": self.start_time,
            "end_time": self.end_time,
        }
        return {name: value for name, value in given.items() if value is not None}


GROUPS = (
    Column(title="COUNT", right=True),
    Column(title="TASK", least=10),
    Column(title="ERROR", least=20),
    Column(title="NEWEST", rank=1),
    Column(title="EXAMPLE", rank=2),
)
MOST = 10_000  # dead letters that one request resolves


@app.command(sort_key=0)
def ls(
    *,
    filters: Filters | None = None,
    group: Annotated[bool, Flag, Parameter(help="Show one line per task and error.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    output: Output = "table",
) -> None:
    """List dead letters, the latest first; with --group by task and error, the most frequent first."""
    with CommandClient() as client:
        query = (filters or Filters()).query(client)
        if group:
            page = client.get("/v1/dead-letters", group="error", **query)
        else:
            page = client.get("/v1/dead-letters", limit=limit, cursor=cursor, **query)
    if group:
        print_page(page, output, GROUPS, _group, empty="no dead letters")
    else:
        print_page(page, output, runs.COLUMNS, runs.row, empty="no dead letters")


app.command(runs.show, name="show", sort_key=1, help="Show a dead letter: its attempts and why it failed.")


@app.command(sort_key=2)
def requeue(
    ids: Ids = None,
    /,
    *,
    filters: Filters | None = None,
    everything: Everything = False,
    param: Annotated[list[str] | None, Several, Parameter(help="A parameter to change, as key=value.")] = None,
    params: Annotated[str | None, Parameter(help="Parameters to change, as a JSON object.")] = None,
    output: Output = "table",
) -> int:
    """Retry dead letters, each as a new run; the exit code is 1 if some are left."""
    edits = {**json_object(params, "--params"), **pairs(param, "--param")}
    with CommandClient() as client, progress_bar("requeueing") as advance:
        selection = _selection(ids, (filters or Filters()).query(client), everything)
        body = {**selection, "params": edits} if edits else selection
        done = _resolve(lambda: client.create("/v1/dead-letters/requeue", body), advance)
    return _report("requeued", done, output)


@app.command(sort_key=3)
def discard(
    ids: Ids = None,
    /,
    *,
    filters: Filters | None = None,
    everything: Everything = False,
    output: Output = "table",
) -> int:
    """Resolve dead letters without running them again; they stay in the history."""
    with CommandClient() as client, progress_bar("discarding") as advance:
        selection = _selection(ids, (filters or Filters()).query(client), everything)
        done = _resolve(lambda: client.post("/v1/dead-letters/discard", selection), advance)
    return _report("discarded", done, output)


def _selection(ids: list[str] | None, filters: Mapping[str, str], everything: bool) -> Document:
    """Return the body that selects dead letters; only one way is allowed, so that a slip does not select them all."""
    if sum(map(bool, (ids, filters, everything))) != 1:
        raise Malformed("select dead letters by their ids, by options such as --task and --error, or with --all")
    if ids:
        return {"ids": [run_id(one) for one in ids]}
    return {"filter": dict(filters)}


def _resolve(request: Callable[[], Document], advance: Callable[[int, int | None], None]) -> Document:
    """Repeat a request until nothing is left, or nothing more can be resolved."""
    matched = done = 0
    while True:
        answer = request()
        matched, done = matched + answer["matched"], done + answer["done"]
        advance(done, done + answer["remaining"] if answer["remaining"] < MOST else None)
        if not answer["remaining"] or not answer["done"]:
            return {"matched": matched, "done": done, "remaining": answer["remaining"]}


def _report(word: str, done: Document, output: str) -> int:
    if output == "json":
        print_json(done)
    else:
        left = str(done["remaining"]) if done["remaining"] else None
        print_fields({word: f"{done['done']} dead letters", "left": left})
    return 1 if done["remaining"] or done["done"] < done["matched"] else 0


def _group(group: Document) -> list[Any]:
    return [
        str(group["count"]),
        group["task"],
        f"{group['error']['type']}: {group['error']['message']}",
        hint(group["newest_at"]),
        group["example_run_id"],
    ]
