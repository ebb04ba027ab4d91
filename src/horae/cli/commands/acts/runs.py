"""`horae runs cancel|retry`: act on one run, or on all that options select."""

from functools import partial
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from horae.cli.arguments import ChangedParam, ChangedParams
from horae.cli.client import CommandClient, Document
from horae.cli.commands.acts.many import NOT_MANY, ManyOptions, act_on_many, only, selected
from horae.cli.commands.runs import NO_FILTERS, Follow, StatusFilters, report_new
from horae.cli.output import Output, print_result
from horae.cli.task_parameters import task_parameters
from horae.core.errors import Malformed

Names = Annotated[list[str] | None, Parameter(help="Runs, by their ids (run_…) or how these begin.")]


def cancel(
    runs: Names = None,
    /,
    *,
    filters: StatusFilters = NO_FILTERS,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Cancel runs; one that has not started never will."""
    with CommandClient() as client:
        which = _selection(client, runs, filters, many)
        if not isinstance(which, str):
            return _on_many(client, "cancel", which, many, output)
        cancelled = client.post(f"/v1/runs/{which}/cancel")
    print_result(cancelled, {cancelled["status"]: cancelled["id"]}, output)
    return 0


def retry(
    runs: Names = None,
    /,
    *,
    filters: StatusFilters = NO_FILTERS,
    param: ChangedParam = None,
    params: ChangedParams = None,
    follow: Follow = False,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Retry failed runs, each as a new run. With --follow the exit code is 0 if that succeeded, else 1."""
    with CommandClient() as client:
        which = _selection(client, runs, filters, many)
        if not isinstance(which, str):
            if param or params or follow:
                raise Malformed("--param, --params and --follow are for one run; `horae dlq requeue` edits many")
            return _on_many(client, "retry", which, many, output)
        path = f"/v1/runs/{which}"
        given = task_parameters(client, lambda: client.get(path)["task"], params, param)
        again: Document = client.create(f"{path}/retry", {"params": given} if given else {})
        return report_new(client, again, follow=follow, output=output)


def _selection(client: CommandClient, runs: list[str] | None, filters: StatusFilters, many: ManyOptions) -> Any:
    """Return the id of the only run that is named, or what selects many: their ids, or a filter."""
    query = filters.query(client)
    if (run := only(runs, query, many)) is not None:
        return client.run_id(run, filters.owner)
    which = selected(runs, query, many, "runs")
    return [client.run_id(each, filters.owner) for each in which] if isinstance(which, list) else which


def _on_many(
    client: CommandClient, action: Literal["cancel", "retry"], which: Any, many: ManyOptions, output: str
) -> int:
    return act_on_many(partial(client.runs.bulk, action, which), action, "runs", many, output)
