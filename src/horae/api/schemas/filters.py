"""The filters of lists: their query parameters, and the jobs and runs that they select."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta

from horae.api.auth.guard import Principal
from horae.api.http.operation import Param, Scope
from horae.api.http.problems import Forbidden
from horae.api.http.query import Query, Text
from horae.api.schemas.ids import read_job_id
from horae.core.errors import Invalid
from horae.core.ids import is_id
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, JobStatus, NodeId, State, Trigger
from horae.core.owners import EVERY_OWNER
from horae.core.values import replace
from horae.ports.reader import JobFilter, RunFilter

RunStatus = Literal[
    "scheduled", "queued", "running", "retrying", "cancelling", "succeeded", "failed", "cancelled", "skipped"
]
LastRunStatus = Literal["queued", "running", "retrying", "succeeded", "failed", "cancelled", "skipped"]
MAX_LATENESS_MS = 999_999_999  # eleven days
JOB_ID_PATTERN = "^job_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$"
WorkerId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Milliseconds = Annotated[int, Meta(ge=1, le=MAX_LATENESS_MS)]
JobIdText = Annotated[str, Meta(pattern=JOB_ID_PATTERN)]

OWNER = Param("owner", Text, "whose; another owner than one's own, or `*` for every owner, needs the scope admin")
LABEL = Param("label", Text, "`name:value`, or `name` for any value")
SEARCH = Param("q", Text, "part of the name, task or key, ignoring case")
TASK = Param("task", Text, "the exact name of the task")
QUEUE = Param("queue", Text, "the exact name of the queue")
DUE_TIMES = (
    Param("start_time", datetime, "due at this time or later"),
    Param("end_time", datetime, "due before this time"),
)
JOB_FILTERS = (
    Param("status", JobStatus, "the status of the job"),
    Param("last_run_status", LastRunStatus, "the status of the job's latest due run"),
    TASK,
    Param("name", Text, "the exact name of the job"),
    Param("key", Text, "the exact key of the job"),
    QUEUE,
    LABEL,
    OWNER,
    SEARCH,
)
SEARCHES = (
    LABEL,
    SEARCH,
    Param("trigger", Trigger, "why the run exists"),
    Param("worker_id", WorkerId, "the worker that runs it, or ran it last"),
    Param("error_type", Text, "the type of the last attempt's error"),
    Param("min_lateness_ms", Milliseconds, "started at least so many milliseconds after it was due"),
)
RUNS_OF_A_JOB = (
    Param("status", RunStatus, "the status of the run"),
    TASK,
    QUEUE,
    *DUE_TIMES,
    *SEARCHES,
)
RUN_FILTERS = (Param("job_id", JobIdText, "runs of this job"), OWNER, *RUNS_OF_A_JOB)
DUE = Param("due", Literal["true", "false"], "`true`: only runs whose due time has come")

LETTER_FILTERS = (
    Param("job_id", JobIdText, "dead letters of this job"),
    TASK,
    QUEUE,
    OWNER,
    Param("error", Text, "the type of the error"),
    *DUE_TIMES,
)

_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})
_SAME_NAME = (State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED)
RUN_STATUSES: dict[str, RunFilter] = {
    "scheduled": RunFilter(states=_UNSTARTED, due=False, stopping=False),
    "queued": RunFilter(states=_UNSTARTED, due=True, stopping=False),
    "running": RunFilter(states=frozenset({State.RUNNING}), stopping=False),
    "cancelling": RunFilter(states=frozenset(State) - FINAL, stopping=True),
    **{state: RunFilter(states=frozenset({state})) for state in _SAME_NAME},
    "retrying": RunFilter(states=frozenset({State.RETRYING}), stopping=False),
}
LAST_RUN_STATES: dict[str, frozenset[State]] = {
    "queued": _UNSTARTED,
    "running": frozenset({State.RUNNING}),
    **{state: frozenset({state}) for state in _SAME_NAME},
}


def job_filter(query: Query, who: Principal, now: datetime) -> JobFilter:
    """Return the filter of a list of jobs."""
    last_run = query.one_of("last_run_status", LAST_RUN_STATES)
    return JobFilter(
        owner=queried_owner(query, who),
        status=query.choice("status", JobStatus),
        last_run_states=None if last_run is None else LAST_RUN_STATES[last_run],
        task=query.text("task"),
        name=query.text("name"),
        key=query.text("key"),
        queue=query.text("queue"),
        label=_label(query),
        text=query.text("q"),
        now=now,
    )


def _label(query: Query) -> tuple[str, str | None] | None:
    """Return the name of a label, and its value if one is asked for."""
    label = query.text("label")
    name, colon, value = (label or "").partition(":")
    return None if label is None else (name, value if colon else None)


def run_filter(query: Query, now: datetime, *, owner: str | None, job_id: JobId | None = None) -> RunFilter:
    """Return the filter of a list of runs; without `job_id` the query may name the job."""
    job = query.text("job_id")
    status = query.one_of("status", RUN_STATUSES)
    return replace(
        RunFilter() if status is None else RUN_STATUSES[status],
        owner=owner,
        job_id=job_id if job is None else read_job_id(job),
        task=query.text("task"),
        queue=query.text("queue"),
        start_at=query.time("start_time"),
        end_at=query.time("end_time"),
        trigger=query.choice("trigger", Trigger),
        node=_worker(query),
        error_type=query.text("error_type"),
        min_lateness=_lateness(query),
        label=_label(query),
        text=query.text("q"),
        now=now,
    )


def _worker(query: Query) -> NodeId | None:
    worker = query.text("worker_id")
    if worker is not None and not is_id(worker):
        raise Invalid("worker_id is not the id of a worker; GET /v1/workers lists them", pointer="/worker_id")
    return None if worker is None else NodeId(worker)


def _lateness(query: Query) -> timedelta | None:
    least = query.number("min_lateness_ms", 0, MAX_LATENESS_MS)
    return timedelta(milliseconds=least) if least else None


def letter_filter(query: Query, who: Principal, now: datetime) -> RunFilter:
    """Return the filter of a list of dead letters."""
    runs = run_filter(query, now, owner=queried_owner(query, who))
    return replace(runs, dead_letters=True, error_type=query.text("error"))


def queried_owner(query: Query, who: Principal) -> str | None:
    """Return whose jobs, runs or events a query is about, None for every owner's; raises Forbidden for another's."""
    return owner_allowed(query.text("owner"), who)


def reached_owner(query: Query, who: Principal) -> str | None:
    """Return the owner that a query names; without one whatever the caller may see, None for every owner's."""
    return queried_owner(query, who) if OWNER.name in query.names else who.reach


def owner_allowed(owner: str | None, who: Principal) -> str | None:
    """Return the given owner, one's own without one, or None for every owner; raises Forbidden for another owner's."""
    if owner is None:
        return who.owner
    if not who.admin and (owner == EVERY_OWNER or owner != who.owner):
        raise Forbidden("another owner's jobs, runs and events need the scope admin", scope=Scope.ADMIN)
    return None if owner == EVERY_OWNER else owner
