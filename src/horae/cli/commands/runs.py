"""`horae runs` and `horae run`: list and show runs, cancel or retry one, and run a job now."""

import time
from dataclasses import asdict, dataclass
from threading import Thread
from typing import Annotated, Any

from cyclopts import App, Parameter

from horae.cli.arguments import (
    Cursor,
    Flag,
    Flat,
    JobName,
    Limit,
    Several,
)
from horae.cli.client import CommandClient, Document, run_id
from horae.cli.output import (
    NOTHING,
    Column,
    Output,
    hint,
    milliseconds,
    one_line,
    print_fields,
    print_json,
    print_note,
    print_page,
    print_result,
    print_table,
    print_text,
    status,
    took,
    when,
)
from horae.cli.task_parameters import task_parameters
from horae.client.runs import RunStatus, Trigger

app = App(name="runs", help="List runs, show how they ended, cancel or retry one.")

RunName = Annotated[str, Parameter(help="Its id (run_…).")]
Follow = Annotated[
    bool,
    Flag,
    Parameter(name=["--follow", "-f"], help="Print the log until the run ends; the exit code is its result."),
]

FINAL = ("succeeded", "failed", "cancelled", "skipped")
POLL_SECONDS = 0.2
LAST_LINES_SECONDS = 10.0  # how long to wait for the end of the log after the end of the run
COLUMNS = (
    Column(title="ID"),
    Column(title="TASK", rank=2, least=10),
    Column(title="STATUS"),
    Column(title="DUE", rank=1),
    Column(title="LATE", rank=3, right=True),
    Column(title="TOOK", rank=4, right=True),
    Column(title="TRY", rank=5, right=True),
    Column(title="WHY", rank=6, least=20),
)
ATTEMPTS = (
    Column(title="TRY", right=True),
    Column(title="STARTED"),
    Column(title="OUTCOME"),
    Column(title="ERROR", least=20),
)


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The options that select runs."""

    job: Annotated[str | None, Parameter(help="Only those of this job: its id, key or name.")] = None
    task: Annotated[str | None, Parameter(help="Only those of this task.")] = None
    queue: Annotated[str | None, Parameter(help="Only those of this queue.")] = None
    start_time: Annotated[str | None, Parameter(help="Due from this timestamp on.")] = None
    end_time: Annotated[str | None, Parameter(help="Due before this timestamp.")] = None

    def query(self, client: CommandClient) -> dict[str, str]:
        """Return the filters as the API takes them; empty if none is given."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.job is not None:
            given["job_id"] = client.job_id(given.pop("job"))
        if "label" in given:
            given["label"] = given["label"].replace("=", ":", 1)
        return given


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFilters(FilterOptions):
    """The options of `runs ls`."""

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
    """List runs by due time, newest first."""
    with CommandClient() as client:
        page = client.page("/v1/runs", **filters.query(client), limit=limit, cursor=cursor)
    print_page(page, output, COLUMNS, row, empty="no runs")


@app.command(sort_key=1)
def show(run: RunName, /, *, output: Output = "table") -> None:
    """Show a run: when it was due, when it started, its attempts and how it ended."""
    with CommandClient() as client:
        found = client.get(f"/v1/runs/{run_id(run)}")
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
        for line in client.runs.logs(run_id(run), follow=follow):
            print_text(line, flush=follow)


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
        found = client.get(f"/v1/runs/{run_id(run)}/why")
    expected = when(found["expected_at"]) if found.get("expected_at") else None
    print_result(found, {"reason": found["reason"], "why": found["detail"], "expected": expected}, output)


def start(
    job: JobName,
    /,
    *,
    param: Annotated[list[str] | None, Several, Parameter(help="A parameter for this run, as key=value.")] = None,
    params: Annotated[str | None, Parameter(help="Parameters for this run, as a JSON object.")] = None,
    follow: Follow = False,
    output: Output = "table",
) -> int:
    """Run a job now. With --follow the exit code is 0 if the run succeeded, else 1."""
    with CommandClient() as client:
        path = f"/v1/jobs/{client.job_id(job)}"
        given = task_parameters(client, lambda: client.get(path)["task"], params, param)
        run: Document = client.create(f"{path}/run", {"params": given} if given else {})
        return report_new(client, run, follow=follow, output=output)


def report_new(client: CommandClient, run: Document, *, follow: bool, output: str) -> int:
    """Print a new run, or follow it to its end, and return the exit code."""
    if follow:
        run = _follow(client, run, quiet=output == "json")
    if output == "json":
        print_json(run)
    elif not follow:
        print_fields({"run": run["id"], "status": status(run["status"]), "due": when(run["due_at"])})
    return 1 if follow and run["status"] != "succeeded" else 0


def _follow(client: CommandClient, run: Document, *, quiet: bool) -> Document:
    """Wait until a run ends; print changes of its status to stderr and its log to stdout."""
    log = Thread(target=_print_log, args=(run["id"],), daemon=True)  # a daemon, so that Ctrl-C ends it, too
    shown = ""
    try:
        if not quiet:
            log.start()
        while True:
            run = client.get(f"/v1/runs/{run['id']}")
            if run["status"] in FINAL:
                break
            shown = shown if quiet else _print_step(run, shown)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        print_note(f"the run continues; stop it with `horae runs cancel {run['id']}`")
        raise
    if not quiet:
        log.join(LAST_LINES_SECONDS)
        _print_step(run, shown)
    return run


def _print_log(run: str) -> None:
    """Print the log as it is written."""
    with CommandClient() as client:
        for line in client.runs.logs(run, follow=True):
            print_text(line, flush=True)


def _print_step(run: Document, shown: str) -> str:
    step = _step(run)
    if step != shown:
        print_note(f"{run['id']} {step}")
    return step


def _step(run: Document) -> str:
    words: str = run["status"]
    if run["status"] in ("running", "retrying") and run["attempt"] > 1:
        words += f" (attempt {run['attempt']})"
    if run["status"] == "failed" and run.get("error"):
        words += f": {_error(run['error'])}"
    if run["status"] == "succeeded" and run.get("result") is not None:
        words += f": {one_line(run['result'])}"
    return words


def row(run: Document) -> list[Any]:
    return [
        run["id"],
        run.get("task") or NOTHING,
        status(run["status"]),
        hint(run["due_at"]),
        milliseconds(run.get("lateness_ms")),
        took(run),
        str(run["attempt"] or NOTHING),
        _error(run.get("error")) or run.get("reason") or "",
    ]


def _fields(run: Document) -> dict[str, Any]:
    return {
        "id": run["id"],
        "job": run["job_id"],
        "task": run.get("task"),
        "status": status(run["status"]),
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
        "error": _error(run.get("error")) or None,
        "replaces": run.get("requeue_of"),
        "resolved": _resolved(run.get("resolution")),
    }


def _resolved(resolution: str | None) -> str | None:
    return f"replaced by {resolution}" if resolution and resolution.startswith("run_") else resolution


def _attempt(attempt: Document) -> list[str]:
    return [
        str(attempt.get("number", "")),
        when(attempt.get("started_at")),
        str(attempt.get("outcome") or attempt.get("status") or NOTHING),
        _error(attempt.get("error")),
    ]


def _error(error: Document | None) -> str:
    return f"{error['type']}: {error['message']}" if error else ""
