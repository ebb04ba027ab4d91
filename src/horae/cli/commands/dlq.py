"""`horae dlq`: list dead letters, requeue or discard some or all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from horae.cli.arguments import ChangedParam, ChangedParams, Cursor, Flag, Flat, Limit
from horae.cli.client import CommandClient, Document, run_id
from horae.cli.commands import runs
from horae.cli.output import Column, Output, hint, print_page, print_result
from horae.cli.progress import Advance, progress_bar
from horae.cli.task_parameters import task_parameters
from horae.client import Resolved
from horae.core.errors import Malformed

app = App(name="dlq", help="List, requeue or discard failed runs (dead letters).")

Ids = Annotated[list[str] | None, Parameter(help="Ids (run_…), instead of the options.")]
Everything = Annotated[bool, Flag, Parameter(name="--all", help="All that you own.")]


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(runs.FilterOptions):
    """The options that select dead letters."""

    error: Annotated[str | None, Parameter(help="Only those that ended with this type of error.")] = None


NO_FILTERS = Filters()
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
    filters: Filters = NO_FILTERS,
    group: Annotated[bool, Flag, Parameter(help="Show one line per task and error.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    output: Output = "table",
) -> None:
    """List dead letters, the latest first; with --group by task and error, the most frequent first."""
    with CommandClient() as client:
        query = filters.query(client)
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
    filters: Filters = NO_FILTERS,
    everything: Everything = False,
    param: ChangedParam = None,
    params: ChangedParams = None,
    output: Output = "table",
) -> int:
    """Retry dead letters, each as a new run; the exit code is 1 if some are left."""
    with CommandClient() as client, progress_bar("requeueing") as advance:
        which = _selection(ids, filters.query(client), everything)
        edits = task_parameters(client, lambda: _task(client, ids, filters), params, param)
        done = client.dead_letters.requeue(which, params=edits or None, repeat=True, progress=_shown_by(advance))
    return _report("requeued", done, output)


@app.command(sort_key=3)
def discard(
    ids: Ids = None,
    /,
    *,
    filters: Filters = NO_FILTERS,
    everything: Everything = False,
    output: Output = "table",
) -> int:
    """Resolve dead letters without running them again; they stay in the history."""
    with CommandClient() as client, progress_bar("discarding") as advance:
        which = _selection(ids, filters.query(client), everything)
        done = client.dead_letters.discard(which, repeat=True, progress=_shown_by(advance))
    return _report("discarded", done, output)


def _selection(ids: list[str] | None, filters: Mapping[str, str], everything: bool) -> Any:
    """Return the ids or the filter of dead letters; only one way is allowed, so that no slip selects all."""
    if sum(map(bool, (ids, filters, everything))) != 1:
        raise Malformed("select dead letters by their ids, by options such as --task and --error, or with --all")
    return [run_id(one) for one in ids] if ids else filters


def _task(client: CommandClient, ids: list[str] | None, filters: Filters) -> str | None:
    """Return the task of the selected dead letters, if one is known to be that of all; ids are taken to be alike."""
    return str(client.get(f"/v1/runs/{run_id(ids[0])}")["task"]) if ids else filters.task


def _shown_by(advance: Advance) -> Callable[[Resolved], None]:
    """Return what shows the progress of many requests; the server counts no more than `MOST` that remain."""
    return lambda so_far: advance(so_far.done, so_far.done + so_far.remaining if so_far.remaining < MOST else None)


def _report(word: str, done: Resolved, output: str) -> int:
    left = str(done.remaining) if done.remaining else None
    print_result(msgspec.to_builtins(done), {word: f"{done.done} dead letters", "left": left}, output)
    return 1 if done.remaining or done.done < done.matched else 0


def _group(group: Document) -> list[Any]:
    return [
        str(group["count"]),
        group["task"],
        f"{group['error']['type']}: {group['error']['message']}",
        hint(group["newest_at"]),
        group["example_run_id"],
    ]
