"""`horae dlq`: list dead letters, requeue or discard some or all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Parameter

from horae.cli.arguments import ChangedParam, ChangedParams, Cursor, Flag, Flat, Limit
from horae.cli.client import CommandClient, Document
from horae.cli.commands import runs
from horae.cli.commands.acts.many import NOT_MANY, ManyOptions, Perform, act_on_many, selected
from horae.cli.output import Column, Output, hint, print_page
from horae.cli.task_parameters import task_parameters
from horae.client import BulkResult, Resolved
from horae.core.owners import EVERY_OWNER

app = App(name="dlq", help="List, requeue or discard failed runs (dead letters).")

Ids = Annotated[list[str] | None, Parameter(help="Ids (run_…) or how they begin, instead of the options.")]


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(runs.FilterOptions):
    """The options that select dead letters."""

    error: Annotated[str | None, Parameter(help="Only those that ended with this type of error.")] = None


NO_FILTERS = Filters()
GROUPS = (
    Column(title="COUNT", right=True),
    Column(title="TASK", least=10, cut="middle"),
    Column(title="ERROR", least=20),
    Column(title="NEWEST", rank=1),
    Column(title="EXAMPLE", rank=2, cut="id"),
)


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
            page = client.page("/v1/dead-letters", limit=limit, cursor=cursor, **query)
    if group:
        print_page(page, output, GROUPS, _group, empty="no dead letters")
    else:
        row = partial(runs.row, whose=filters.owner == EVERY_OWNER)
        print_page(page, output, runs.COLUMNS, row, empty="no dead letters")


app.command(runs.show, name="show", sort_key=1, help="Show a dead letter: its attempts and why it failed.")


@app.command(sort_key=2)
def requeue(
    ids: Ids = None,
    /,
    *,
    filters: Filters = NO_FILTERS,
    param: ChangedParam = None,
    params: ChangedParams = None,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Retry dead letters, each as a new run; the exit code is 1 if some are left."""
    with CommandClient() as client:
        which = _selection(client, ids, filters, many)
        edits = task_parameters(client, lambda: _task(client, ids, filters), params, param)
        perform = _perform(client, which, partial(client.dead_letters.requeue, which, params=edits or None))
        return act_on_many(perform, "requeue", "dead letters", many, output)


@app.command(sort_key=3)
def discard(
    ids: Ids = None,
    /,
    *,
    filters: Filters = NO_FILTERS,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Resolve dead letters without running them again; they stay in the history."""
    with CommandClient() as client:
        which = _selection(client, ids, filters, many)
        perform = _perform(client, which, partial(client.dead_letters.discard, which))
        return act_on_many(perform, "discard", "dead letters", many, output)


def _selection(client: CommandClient, ids: list[str] | None, filters: Filters, many: ManyOptions) -> Any:
    which = selected(ids, filters.query(client), many, "dead letters")
    return [client.run_id(one, filters.owner) for one in which] if isinstance(which, list) else which


def _perform(client: CommandClient, which: Any, resolve: Callable[..., Resolved]) -> Perform:
    """Return an act on many that resolves dead letters; its dry run counts them."""

    def perform(*, dry_run: bool, repeat: bool, progress: Callable[[BulkResult], None] | None) -> BulkResult:
        if dry_run:
            return _counted(client, which)
        shown = None if progress is None else lambda so_far: progress(_bulk_result(so_far))
        return _bulk_result(resolve(repeat=repeat, progress=shown))

    return perform


def _counted(client: CommandClient, which: Any) -> BulkResult:
    if isinstance(which, list):
        return client.runs.bulk("retry", which, dry_run=True)
    count = sum(group.count for group in client.dead_letters.groups(**which))
    return BulkResult(matched=count, done=0, remaining=count)


def _bulk_result(resolved: Resolved) -> BulkResult:
    return BulkResult(matched=resolved.matched, done=resolved.done, remaining=resolved.remaining)


def _task(client: CommandClient, ids: list[str] | None, filters: Filters) -> str | None:
    """Return the task of the selected dead letters, if one is known to be that of all; ids are taken to be alike."""
    if not ids:
        return filters.task
    return str(client.get(f"/v1/runs/{client.run_id(ids[0], filters.owner)}")["task"])


def _group(group: Document) -> list[Any]:
    return [
        str(group["count"]),
        group["task"],
        f"{group['error']['type']}: {group['error']['message']}",
        hint(group["newest_at"]),
        group["example_run_id"],
    ]
