"""`horae jobs pause|resume|run|cancel`: act on one job, or on all that options select."""

from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter

from horae.cli.arguments import Flag, Several
from horae.cli.client import CommandClient
from horae.cli.commands import runs
from horae.cli.commands.acts.many import NOT_MANY, ManyOptions, act_on_many, only, selected
from horae.cli.commands.jobs import NO_FILTERS, JobSelection, report
from horae.cli.output import Output
from horae.core.errors import Malformed

Names = Annotated[
    list[str] | None,
    Parameter(help="Jobs, by their ids (job_…) or how these begin, or by key or name if only one job has that."),
]
Action = Literal["pause", "resume", "cancel", "run"]
Missed = Literal["skip", "once", "all"]


def pause(
    jobs: Names = None,
    /,
    *,
    filters: JobSelection = NO_FILTERS,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Stop the schedule of jobs until they are resumed; runs that are already due still run."""
    with CommandClient() as client:
        if (job := only(jobs, filters.query(), many)) is None:
            return _on_many(client, "pause", jobs, filters, many, output)
        paused = client.post(f"/v1/jobs/{client.job_id(job, filters.owner)}/pause")
    report("paused", paused, output)
    return 0


def resume(
    jobs: Names = None,
    /,
    *,
    filters: JobSelection = NO_FILTERS,
    missed: Annotated[
        Missed | None, Parameter(help="Which of the slots missed while paused to run (default skip).")
    ] = None,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Resume paused jobs."""
    with CommandClient() as client:
        if (job := only(jobs, filters.query(), many)) is None:
            return _on_many(client, "resume", jobs, filters, many, output, missed=missed)
        body = {} if missed is None else {"missed": missed}
        resumed = client.post(f"/v1/jobs/{client.job_id(job, filters.owner)}/resume", body)
    report("resumed", resumed, output)
    return 0


def run(
    jobs: Names = None,
    /,
    *,
    filters: JobSelection = NO_FILTERS,
    param: Annotated[list[str] | None, Several, Parameter(help="A parameter for this run, as key=value.")] = None,
    params: Annotated[str | None, Parameter(help="Parameters for this run, as a JSON object.")] = None,
    follow: runs.Follow = False,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Run jobs now, whatever their schedule; also while they are paused."""
    if (job := only(jobs, filters.query(), many)) is not None:
        return runs.start(job, param=param, params=params, follow=follow, owner=filters.owner, output=output)
    if param or params or follow:
        raise Malformed("--param, --params and --follow belong to the run of one job; name one, or leave them out")
    with CommandClient() as client:
        return _on_many(client, "run", jobs, filters, many, output)


def cancel(
    jobs: Names = None,
    /,
    *,
    filters: JobSelection = NO_FILTERS,
    keep_running: Annotated[bool, Flag, Parameter(help="Let running runs finish; for one job.")] = False,
    many: ManyOptions = NOT_MANY,
    output: Output = "table",
) -> int:
    """Cancel jobs for good, with their waiting and running runs."""
    with CommandClient() as client:
        if (job := only(jobs, filters.query(), many)) is None:
            if keep_running:
                raise Malformed("--keep-running is for one job; cancel the waiting runs with `horae runs cancel`")
            return _on_many(client, "cancel", jobs, filters, many, output)
        cancelled = client.delete(
            f"/v1/jobs/{client.job_id(job, filters.owner)}", running="keep" if keep_running else None
        )
    report("cancelled", cancelled, output)
    return 0


def _on_many(
    client: CommandClient,
    action: Action,
    jobs: list[str] | None,
    filters: JobSelection,
    many: ManyOptions,
    output: str,
    *,
    missed: Missed | None = None,
) -> int:
    which = selected(jobs, filters.query(), many, "jobs")
    found = [client.job_id(job, filters.owner) for job in which] if isinstance(which, list) else which
    return act_on_many(partial(client.jobs.bulk, action, found, missed=missed), action, "jobs", many, output)
