"""`horae runs` and `horae run`: list and show runs, cancel or retry one, and run a job now."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Parameter

from horae.cli import following
from horae.cli.arguments import Cursor, Flag, Flat, JobName, Limit, Owner, Several
from horae.cli.client import CommandClient, Document
from horae.cli.completers import queue_names, task_names
from horae.cli.following import error_words
from horae.cli.output import (
    NOTHING,
    OWNER,
    Column,
    Output,
    hint,
    in_local_time,
    milliseconds,
    one_line,
    print_fields,
    print_json,
    print_page,
    print_result,
    print_table,
    print_text,
    status,
    took,
    when,
)
from horae.cli.task_parameters import task_parameters
from horae.cli.times import past
from horae.client.runs import RunStatus, Trigger
from horae.core.owners import EVERY_OWNER

app = App(name="runs", help="List runs, show how they ended, cancel or retry one.")

RunName = Annotated[str, Parameter(help="Its id (run_…), or how that begins.")]
Follow = Annotated[
    bool,
    Flag,
    Parameter(name=["--follow", "-f"], help="Print the log until the run ends; the exit code is its result."),
]

COLUMNS = (
    Column(title="ID", cut="id"),
    Column(title="JOB", least=12, cut="middle"),
    Column(title="WHY", least=22),
    Column(title="STATUS", rank=1),
    Column(title="DUE", rank=2),
    Column(title="TASK", rank=4, least=10, cut="middle"),
    Column(title="LATE", rank=5, right=True),
    Column(title="TOOK", rank=3, right=True),
    Column(title="TRY", rank=6, right=True),
    Column(title="QUEUE", rank=7, least=8, cut="middle"),
    Column(title="AT", rank=8),
    OWNER,
)
ATTEMPTS = (
    Column(title="TRY", right=True),
    Column(title="ERROR", least=20),
    Column(title="OUTCOME"),
    Column(title="STARTED", rank=1),
)


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The options that select runs."""

    job: Annotated[str | None, Parameter(help="Only those of this job: its id, key or name.")] = None
    task: Annotated[str | None, Parameter(help="Only those of this task.", completer=task_names)] = None
    queue: Annotated[str | None, Parameter(help="Only those of this queue.", completer=queue_names)] = None
    start_time: Annotated[
        str | None,
        Parameter(
            name=["--since", "--start-time"],
            help="Due from this time on: 1h (ago), yesterday, 14:30, 2026-01-31 or a timestamp.",
        ),
    ] = None
    end_time: Annotated[
        str | None, Parameter(name=["--until", "--end-time"], help="Due before this time, written like --since.")
    ] = None
    owner: Owner = None

    def query(self, client: CommandClient) -> dict[str, str]:
        """Return the filters as the API takes them; empty if none is given."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        for field, option in (("start_time", "--since"), ("end_time", "--until")):
            if field in given:
                given[field] = past(given[field], option)
        if self.job is not None:
            given["job_id"] = client.job_id(given.pop("job"), self.owner)
        if "label" in given:
            given["label"] = given["label"].replace("=", ":", 1)
        return given


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFilters(FilterOptions):
    """The options that select runs in a list of them, or for an act on many."""

    status: Annotated[RunStatus | None, Parameter(help="Only those with this status.")] = None
    trigger: Annotated[Trigger | None, Parameter(help="Only those that exist for this reason.")] = None
    label: Annotated[str | None, Parameter(help="Only those with this label: key, or key=value.")] = None
    q: Annotated[str | None, Parameter(help="Part of the name, task or key.")] = None
    worker_id: Annotated[str | None, Parameter(help="Only those that this worker ran last.")] = None
    error_type: Annotated[str | None, Parameter(help="Only those whose last error has this type.")] = None
    min_lateness_ms: Annotated[int | None, Parameter(help="Only those that started at least so late.")] = None


NO_FILTERS = StatusFilters()


@app.command(sort_key=0)
def ls(
    *, filters: StatusFilters = NO_FILTERS, limit: Limit = 50, cursor: Cursor = None, output: Output = "table"
) -> None:
    """List runs by due time, latest first. A table begins with what is due; --status scheduled has what is to come."""
    happened = output != "json" and filters.status is None and filters.end_time is None
    with CommandClient() as client:
        query = {**filters.query(client), **({"due": "true"} if happened else {})}
        page = client.page("/v1/runs", **query, limit=limit, cursor=cursor)
    empty = "no runs; `horae runs ls --status scheduled` lists those to come" if happened else "no runs"
    print_page(page, output, COLUMNS, partial(row, whose=filters.owner == EVERY_OWNER), empty=empty)


@app.command(sort_key=1)
def show(run: RunName, /, *, output: Output = "table") -> None:
    """Show a run: when it was due, when it started, its attempts and how it ended."""
    with CommandClient() as client:
        found = client.get(f"/v1/runs/{client.run_id(run)}")
    if output == "json":
        print_json(found)
        return
    print_fields(_fields(found))
    if found.get("attempts"):
        print_text()
        print_table(ATTEMPTS, map(_attempt, found["attempts"]), empty="")


@app.command(sort_key=2)
def logs(
    run: RunName,
    /,
    *,
    follow: Annotated[
        bool, Flag, Parameter(name=["--follow", "-f"], help="Print new lines until the run ends.")
    ] = False,
) -> None:
    """Print the log of a run."""
    with CommandClient() as client:
        if follow:
            following.follow(client, client.run_id(run), with_log=True)
            return
        for line in client.runs.logs(client.run_id(run)):
            print_text(line)


app.command(
    "horae.cli.commands.acts.runs:cancel",
    name="cancel",
    sort_key=3,
    help="Cancel runs; one that has not started never will.",
)
app.command(
    "horae.cli.commands.acts.runs:retry",
    name="retry",
    sort_key=4,
    help="Retry failed runs, each as a new run. With --follow the exit code is 0 if that succeeded, else 1.",
)


@app.command(sort_key=5)
def why(run: RunName, /, *, output: Output = "table") -> None:
    """Explain why a run has not started, and what to do about it."""
    with CommandClient() as client:
        found = client.get(f"/v1/runs/{client.run_id(run)}/why")
    expected = when(found["expected_at"]) if found.get("expected_at") else None
    print_result(
        found, {"reason": found["reason"], "why": in_local_time(found["detail"]), "expected": expected}, output
    )


def start(
    job: JobName,
    /,
    *,
    param: Annotated[list[str] | None, Several, Parameter(help="A parameter for this run, as key=value.")] = None,
    params: Annotated[str | None, Parameter(help="Parameters for this run, as a JSON object.")] = None,
    follow: Follow = False,
    owner: Owner = None,
    output: Output = "table",
) -> int:
    """Run a job now. With --follow the exit code is 0 if the run succeeded, else 1."""
    with CommandClient() as client:
        path = f"/v1/jobs/{client.job_id(job, owner)}"
        given = task_parameters(client, lambda: client.get(path)["task"], params, param)
        run: Document = client.create(f"{path}/run", {"params": given} if given else {})
        return report_new(client, run, follow=follow, output=output)


def report_new(client: CommandClient, run: Document, *, follow: bool, output: str) -> int:
    """Print a new run, or follow it to its end, and return the exit code."""
    if follow:
        run = following.follow(client, run["id"], with_log=output != "json")
    if output == "json":
        print_json(run)
    elif not follow:
        print_fields({"run": run["id"], "status": status(run["status"]), "due": when(run["due_at"])})
    return 1 if follow and run["status"] != "succeeded" else 0


def row(run: Document, *, whose: bool = False) -> list[Any]:
    """Return the cells of a run; what is already said by its job is left out, and its owner unless asked for."""
    job = run.get("name") or run.get("key")
    return [
        run["id"],
        job or run["task"],
        error_words(run.get("error")) or run.get("reason") or "",
        status(run["status"]),
        hint(run["due_at"]),
        run["task"] if job else "",
        milliseconds(run.get("lateness_ms")),
        took(run),
        str(run["attempt"] or NOTHING),
        run["queue"],
        when(run["due_at"]).partition(" · ")[0],
        run["owner"] if whose else "",
    ]


def _fields(run: Document) -> dict[str, Any]:
    return {
        "id": run["id"],
        "job": _job(run),
        "task": run.get("task"),
        "status": status(run["status"]),
        "archived": "yes, `horae archive restore` brings it back" if run.get("archived") else None,
        "reason": run.get("reason"),
        "trigger": run["trigger"],
        "due": when(run["due_at"]),
        "started": when(run["started_at"]) if run.get("started_at") else None,
        "late": milliseconds(run["lateness_ms"]) if run.get("lateness_ms") is not None else None,
        "finished": when(run["finished_at"]) if run.get("finished_at") else None,
        "took": took(run) if run.get("finished_at") else None,
        "attempt": str(run["attempt"]),
        "crashes": str(run["crashes"]) if run.get("crashes") else None,
        "worker": run.get("worker_id"),
        "params": one_line(run["params"]) if run.get("params") else None,
        "progress": f"{run['progress']:.0%}" if run.get("progress") is not None else None,
        "result": one_line(run["result"]) if run.get("result") is not None else None,
        "error": error_words(run.get("error")) or None,
        "replaces": run.get("requeue_of"),
        "resolved": _resolved(run.get("resolution")),
    }


def _job(run: Document) -> str:
    named = run.get("name") or run.get("key")
    return f"{named} ({run['job_id']})" if named else str(run["job_id"])


def _resolved(resolution: str | None) -> str | None:
    return f"replaced by {resolution}" if resolution and resolution.startswith("run_") else resolution


def _attempt(attempt: Document) -> list[str]:
    return [
        str(attempt["number"]),
        error_words(attempt.get("error")),
        attempt["outcome"],
        when(attempt.get("started_at")),
    ]
