"""`horae jobs`: create, list, change and cancel jobs over REST."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from horae.cli.arguments import (
    Cursor,
    Flag,
    Flat,
    JobName,
    Limit,
    Owner,
    Positive,
    Several,
    changes,
    schedule_of,
    text_pairs,
)
from horae.cli.client import CommandClient, Document
from horae.cli.commands.create_batch import create_from
from horae.cli.completers import queue_names, task_names
from horae.cli.option_words import told_in_options
from horae.cli.output import (
    NOTHING,
    OWNER,
    Column,
    Output,
    hint,
    one_line,
    print_page,
    print_result,
    status,
    when,
)
from horae.cli.task_parameters import task_parameters, task_secrets
from horae.client.jobs import JobStatus
from horae.core.errors import Malformed
from horae.core.owners import EVERY_OWNER

app = App(name="jobs", help="Create, list, change and cancel jobs.")

COLUMNS = (
    Column(title="ID", cut="id"),
    Column(title="NAME", least=16, cut="middle"),
    Column(title="LAST", rank=1),
    Column(title="STATUS"),
    Column(title="NEXT", rank=2),
    Column(title="SCHEDULE", rank=3, least=16),
    Column(title="TASK", rank=4, least=10, cut="middle"),
    Column(title="AT", rank=5),
    OWNER,
)
ACTS = {  # each on one job, or on many
    "pause": "Stop the schedule of jobs until they are resumed; runs that are already due still run.",
    "resume": "Resume paused jobs.",
    "run": "Run jobs now, whatever their schedule; also while they are paused.",
    "cancel": "Cancel jobs for good, with their waiting and running runs.",
}
FIRES = (Column(title="WHEN"), Column(title=""), Column(title="NOTE", rank=1, least=20))


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class NewJobOptions:
    """The options of a new job that are sent as they are; each is named like its field in the API."""

    name: Annotated[str | None, Parameter(help="A name for people.")] = None
    key: Annotated[str | None, Parameter(help="Unique among your unfinished jobs.")] = None
    queue: Annotated[
        str | None, Parameter(help="The queue of its runs (default `default`).", completer=queue_names)
    ] = None
    priority: Annotated[int | None, Parameter(help="-100 to 100; higher first.", allow_leading_hyphen=True)] = None
    ordering_key: Annotated[str | None, Parameter(help="Runs with the same key run one after another.")] = None
    on_failure: Annotated[
        Literal["continue", "block"] | None,
        Parameter(
            help="After a dead letter, continue with the runs behind it or block them; block needs --ordering-key."
        ),
    ] = None
    timeout_seconds: Annotated[float | None, Parameter(name="--timeout", help="Seconds that an attempt may take.")] = (
        None
    )
    start_within_seconds: Annotated[
        float | None, Parameter(name="--start-within", help="Skip a run that cannot start within so many seconds.")
    ] = None
    max_retries: Annotated[
        int | None, Parameter(help="Attempts after the first (default: the task's own, else 3).")
    ] = None
    overlap: Annotated[
        Literal["allow", "skip", "buffer_one"] | None,
        Parameter(help="What to do while the previous run still runs (default skip)."),
    ] = None
    misfire: Annotated[
        Literal["skip", "once", "all"] | None, Parameter(help="Which missed slots to run (default once).")
    ] = None
    catchup_seconds: Annotated[
        float | None, Parameter(name="--catchup", help="Skip missed slots that are older than so many seconds.")
    ] = None


NO_OPTIONS = NewJobOptions()


@app.command(sort_key=0)
def create(
    task: Annotated[str | None, Parameter(help="The task's name, such as http.request.", completer=task_names)] = None,
    /,
    *,
    file: Annotated[str | None, Parameter(help="Create many jobs from one JSON object a line; - is stdin.")] = None,
    schedule: Annotated[
        str | None,
        Parameter(help="now (default), 'in 10m', 'tomorrow 9:00', a timestamp, cron, 'every 5m', or an object."),
    ] = None,
    tz: Annotated[str | None, Parameter(help="The time zone of a schedule.")] = None,
    param: Annotated[list[str] | None, Several, Parameter(help="A parameter, as key=value; JSON or text.")] = None,
    params: Annotated[str | None, Parameter(help="All parameters, as a JSON object.")] = None,
    label: Annotated[list[str] | None, Several, Parameter(help="A label, as key=value.")] = None,
    secret: Annotated[
        list[str] | None, Several, Parameter(help="A parameter that is never shown, as key=value or key=@FILE.")
    ] = None,
    options: NewJobOptions = NO_OPTIONS,
    allow_unknown_task: Annotated[bool, Flag, Parameter(help="Accept a task that no worker knows yet.")] = False,
    output: Output = "table",
) -> int:
    """Create a job that runs TASK; with --file many jobs, and the exit code is 1 if one was refused."""
    given: dict[str, Any] = {
        "task": task,
        "schedule": _schedule(schedule, tz),
        "labels": text_pairs(label, "--label") or None,
        **asdict(options),
        "allow_unknown_task": allow_unknown_task or None,
    }
    body = {field: value for field, value in given.items() if value is not None}
    if file is not None:
        if body or param or params or secret:
            raise Malformed("--file describes its jobs completely; leave out TASK and the other options")
        return create_from(file, output)
    if task is None:
        raise Malformed("name the TASK to run, or a --file of jobs")
    with CommandClient() as client:
        values = {
            "params": task_parameters(client, lambda: task, params, param),
            "secrets": task_secrets(client, lambda: task, secret),
        }
        with told_in_options():
            job = client.create("/v1/jobs", body | {field: value for field, value in values.items() if value})
    report("created", job, output)
    return 0


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """The options that select jobs."""

    status: Annotated[JobStatus | None, Parameter(help="Only jobs with this status.")] = None
    task: Annotated[str | None, Parameter(help="Only jobs of this task.", completer=task_names)] = None
    name: Annotated[str | None, Parameter(help="Only jobs with this name.")] = None
    key: Annotated[str | None, Parameter(help="Only the job with this key.")] = None
    queue: Annotated[str | None, Parameter(help="Only jobs of this queue.", completer=queue_names)] = None
    label: Annotated[str | None, Parameter(help="Only jobs with this label: key, or key=value.")] = None
    owner: Owner = None

    def query(self) -> dict[str, str]:
        """Return the filters as the API takes them; empty if none is given."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.label is not None:
            given["label"] = self.label.replace("=", ":", 1)
        return given


NO_FILTERS = JobSelection()


@app.command(sort_key=1)
def ls(
    *, filters: JobSelection = NO_FILTERS, limit: Limit = 50, cursor: Cursor = None, output: Output = "table"
) -> None:
    """List jobs, newest first."""
    with CommandClient() as client:
        page = client.page("/v1/jobs", **filters.query(), limit=limit, cursor=cursor)
    row = partial(_row, whose=filters.owner == EVERY_OWNER)
    print_page(page, output, COLUMNS, row, empty="no jobs; create one with `horae jobs create TASK`")


@app.command(sort_key=2)
def show(job: JobName, /, *, owner: Owner = None, output: Output = "table") -> None:
    """Show the fields of a job, and its last and next run."""
    with CommandClient() as client:
        found = client.get(f"/v1/jobs/{client.job_id(job, owner)}")
    print_result(found, _fields(found), output)


@app.command(sort_key=3)
def edit(
    job: JobName,
    /,
    *,
    set_: Annotated[
        list[str],
        Several,
        Parameter(name="--set", help="A change, as field=JSON; retry.jitter=false changes a part, null clears."),
    ],
    owner: Owner = None,
    output: Output = "table",
) -> None:
    """Change fields of a job; a new schedule changes its next run."""
    with CommandClient() as client:
        changed = client.patch(f"/v1/jobs/{client.job_id(job, owner)}", changes(set_, "--set"))
    report("changed", changed, output)


for place, (act, sentence) in enumerate(ACTS.items(), 4):
    app.command(f"horae.cli.commands.acts.jobs:{act}", name=act, sort_key=place, help=sentence)


@app.command(name="next", sort_key=8)
def next_fires(
    job: JobName,
    /,
    *,
    count: Annotated[int, Positive, Parameter(name=["--count", "-n"], help="How many instants to show.")] = 10,
    owner: Owner = None,
    output: Output = "table",
) -> None:
    """Show when a job fires next."""
    with CommandClient() as client:
        coming = client.get(f"/v1/jobs/{client.job_id(job, owner)}/next", count=count)
    print_page(coming, output, FIRES, _fire, empty="it does not fire again")


app.command(
    "horae.cli.commands.backfill:backfill",
    name="backfill",
    sort_key=9,
    help="Run the slots of a job in a range of the past again.",
)
app.command(
    "horae.cli.commands.prune:prune",
    name="prune",
    sort_key=10,
    help="Cancel schedules that an application no longer declares in its code.",
)


def _schedule(schedule: str | None, tz: str | None) -> Any:
    if schedule is not None:
        return schedule_of(schedule, tz)
    if tz is not None:
        raise Malformed("--tz needs a --schedule")
    return None


def report(action: str, job: Document, output: str) -> None:
    """Print what became of a job."""
    named = f" ({job['name']})" if job.get("name") else ""
    fires = None if job["status"] == "cancelled" else job["description"]
    print_result(job, {action: f"{job['id']}{named}", "fires": fires, "next run": _next_run(job)}, output)


def _next_run(job: Document) -> str | None:
    return when(job["next_run_at"]) if job.get("next_run_at") else None


def _row(job: Document, *, whose: bool) -> list[Any]:
    last = job.get("last_run") or {}
    return [
        job["id"],
        job.get("name") or job.get("key") or job["task"],
        status(last.get("status")),
        status(job["status"]),
        hint(job.get("next_run_at")),
        job.get("description") or NOTHING,
        job["task"],
        when(job["next_run_at"]).partition(" · ")[0] if job.get("next_run_at") else "",
        job["owner"] if whose else "",
    ]


def _fields(job: Document) -> dict[str, Any]:
    last = job.get("last_run")
    recurring = job["schedule"]["type"] not in ("now", "at")
    return {
        "id": job["id"],
        "name": job.get("name"),
        "key": job.get("key"),
        "status": status(job["status"]),
        "task": job["task"],
        "params": one_line(job["params"]) if job.get("params") else None,
        "labels": ", ".join(f"{key}={value}" for key, value in job["labels"].items()) if job.get("labels") else None,
        "fires": job.get("description"),
        "next run": _next_run(job),
        "last run": _last_run(last) if last and last.get("run_id") else None,
        "queue": f"{job['queue']}, priority {job['priority']}",
        "retries": str(job["max_retries"]),
        "timeout": f"{job['timeout_seconds']:g} s" if job.get("timeout_seconds") else None,
        "ordering key": job.get("ordering_key"),
        "overlap": job.get("overlap") if recurring else None,
        "misfire": job.get("misfire") if recurring else None,
        "owner": job["owner"],
        "created": when(job["created_at"]),
        "revision": str(job["revision"]),
    }


def _last_run(run: Document) -> str:
    return f"{run['status']}, due {when(run.get('due_at'))}, {run['run_id']}"


def _fire(fire: Document) -> list[str]:
    moment, _, far = when(fire["at"]).partition(" · ")
    return [moment, far, fire.get("note") or ""]
