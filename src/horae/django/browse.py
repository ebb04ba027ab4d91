"""Reads pages of jobs and runs for the admin, and acts on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from horae.core.errors import Invalid, NotFound
from horae.core.ids import is_id
from horae.core.job_rules import run_status
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, JobStatus, Run, RunId, State
from horae.core.schedule.describe import describe
from horae.jobs.params import Parameters
from horae.ports.reader import JobFilter, RunFilter
from horae.queries.jobs import JobQueries, Overview

if TYPE_CHECKING:
    from horae.sdk.connection import Connection

T = TypeVar("T")

PAGE = 50
JOB_STATUSES = tuple(str(status) for status in JobStatus)
RUN_STATES: Mapping[str, frozenset[State]] = {
    "waiting": frozenset({State.SCHEDULED, State.CLAIMED, State.RETRYING}),
    **{str(state): frozenset({state}) for state in (State.RUNNING, *sorted(FINAL))},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSearch:
    """What the user looks for; empty texts mean anything."""

    status: str = ""
    text: str = ""
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as the admin shows it."""

    id: str
    title: str
    task: str
    schedule: str
    status: str
    last_status: str
    next_at: datetime | None
    open: bool  # can be cancelled
    runnable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as the admin shows it."""

    id: str
    title: str
    task: str
    status: str
    due_at: datetime
    finished_at: datetime | None
    attempt: int
    error: str
    open: bool  # can be cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPage(Generic[T]):
    """Some rows, and the cursor of the next page."""

    rows: Sequence[T]
    cursor: str | None


async def job_page(connection: "Connection", owner: str, search: AdminSearch) -> AdminPage[JobRow]:
    """Return a page of the jobs of an owner, newest first."""
    status = JobStatus(search.status) if search.status in JOB_STATUSES else None
    which = JobFilter(owner=owner, status=status, text=search.text or None)
    found = await _queries(connection).jobs(which, cursor=search.cursor, limit=PAGE)
    return AdminPage(rows=[_job_row(overview) for overview in found.items], cursor=found.cursor)


async def run_page(connection: "Connection", owner: str, search: AdminSearch) -> AdminPage[RunRow]:
    """Return a page of the runs of an owner, the latest due time first; the text is the name of a task."""
    which = RunFilter(owner=owner, states=RUN_STATES.get(search.status), task=search.text or None)
    found = await _queries(connection).runs(which, cursor=search.cursor, limit=PAGE)
    now = connection.clock.now()
    return AdminPage(rows=[_run_row(run, now) for run in found.items], cursor=found.cursor)


async def act(connection: "Connection", action: str, subject: str, *, owner: str, by: str) -> str:
    """Cancel a job or a run, or run a job now; returns what was done, for people."""
    kind, _, ident = subject.partition("_")
    if not is_id(ident):
        raise NotFound("job or run", subject[:100])
    match action, kind:
        case "cancel", "job":
            job = await connection.jobs.cancel(JobId(ident), keep_running=False, owner=owner)
            return f"The job {subject} is {job.status}."
        case "cancel", "run":
            run = await connection.jobs.cancel_run(RunId(ident), owner=owner)
            return f"The run {subject} is {run_status(run, connection.clock.now())}."
        case "run_now", "job":
            started = await connection.jobs.run_now(JobId(ident), None, owner=owner, by=by)
            assert isinstance(started, Run)
            return f"The job {subject} runs now, as run_{started.id}."
    raise Invalid(f"cannot {action} {subject}; choose cancel or run_now, and the id of a job or run")


def _queries(connection: "Connection") -> JobQueries:
    blobs = connection.store.blobs
    return JobQueries(store=connection.store, blobs=blobs, parameters=Parameters(blobs), clock=connection.clock)


def _job_row(overview: Overview) -> JobRow:
    job, last = overview.job, overview.last_run
    waiting = job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED)
    return JobRow(
        id=f"job_{job.id}",
        title=job.spec.name or job.spec.key or job.spec.task,
        task=job.spec.task,
        schedule=describe(job.schedule),
        status=str(job.status),
        last_status="" if last is None else str(run_status(last, overview.read_at)),
        next_at=overview.next_run_at,
        open=waiting and (job.run is None or job.run.state not in FINAL),
        runnable=job.status is not JobStatus.CANCELLED,
    )


def _run_row(run: Run, now: datetime) -> RunRow:
    return RunRow(
        id=f"run_{run.id}",
        title=run.spec.name or run.spec.key or run.spec.task,
        task=run.spec.task,
        status=str(run_status(run, now)),
        due_at=run.due_at,
        finished_at=run.finished_at,
        attempt=run.attempt,
        error="" if run.error is None else f"{run.error.type}: {run.error.message}",
        open=run.state not in FINAL,
    )
