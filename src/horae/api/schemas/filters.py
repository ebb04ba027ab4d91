"""Which jobs and runs a list asks for."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from horae.api.auth.guard import Principal
from horae.api.http.operation import Param
from horae.api.http.problems import Forbidden
from horae.api.http.query import Query, Text
from horae.api.schemas.ids import read_job_id
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, JobStatus, State
from horae.core.values import replace
from horae.ports.reader import JobFilter, RunFilter

RunStatus = Literal[
    "scheduled", "queued", "running", "retrying", "cancelling", "succeeded", "failed", "cancelled", "skipped"
]
LastRunStatus = Literal["queued", "running", "retrying", "succeeded", "failed", "cancelled", "skipped"]
JobIdText = Annotated[str, Meta(pattern="^job_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$")]

OWNER = Param(name="owner", schema=Text, description="whose; another owner than oneself needs the scope admin")
TASK = Param(name="task", schema=Text, description="the exact name of the task")
QUEUE = Param(name="queue", schema=Text, description="the exact name of the queue")
JOB_FILTERS = (
    Param(name="status", schema=JobStatus, description="how the job stands"),
    Param(name="last_run_status", schema=LastRunStatus, description="how its latest run that is due stands"),
    TASK,
    Param(name="name", schema=Text, description="the exact name of the job"),
    Param(name="key", schema=Text, description="the exact key of the job"),
    QUEUE,
    Param(name="label", schema=Text, description="`name:value`, or `name` for any value"),
    OWNER,
    Param(name="q", schema=Text, description="part of name, task or key, in any case"),
)
RUNS_OF_A_JOB = (
    Param(name="status", schema=RunStatus, description="how the run stands"),
    TASK,
    QUEUE,
    Param(name="start_time", schema=datetime, description="due at this time or later"),
    Param(name="end_time", schema=datetime, description="due before this time"),
)
RUN_FILTERS = (Param(name="job_id", schema=JobIdText, description="runs of this job"), OWNER, *RUNS_OF_A_JOB)

LETTER_FILTERS = (
    Param(name="job_id", schema=JobIdText, description="letters of this job"),
    TASK,
    QUEUE,
    OWNER,
    Param(name="error", schema=Text, description="the type of the error that they failed of"),
    Param(name="start_time", schema=datetime, description="due at this time or later"),
    Param(name="end_time", schema=datetime, description="due before this time"),
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
    """The jobs that a query asks for."""
    last_run = query.one_of("last_run_status", LAST_RUN_STATES)
    label = query.text("label")
    name, colon, value = (label or "").partition(":")
    return JobFilter(
        owner=owner_asked_for(query, who),
        status=query.choice("status", JobStatus),
        last_run_states=None if last_run is None else LAST_RUN_STATES[last_run],
        task=query.text("task"),
        name=query.text("name"),
        key=query.text("key"),
        queue=query.text("queue"),
        label=None if label is None else (name, value if colon else None),
        text=query.text("q"),
        now=now,
    )


def run_filter(query: Query, *, owner: str | None, job_id: JobId | None, now: datetime) -> RunFilter:
    """The runs that a query asks for."""
    status = query.one_of("status", RUN_STATUSES)
    return replace(
        RunFilter() if status is None else RUN_STATUSES[status],
        owner=owner,
        job_id=job_id,
        task=query.text("task"),
        queue=query.text("queue"),
        start_at=query.time("start_time"),
        end_at=query.time("end_time"),
        now=now,
    )


def letter_filter(query: Query, who: Principal) -> RunFilter:
    """The dead letters that a query asks for."""
    job = query.text("job_id")
    return RunFilter(
        owner=owner_asked_for(query, who),
        job_id=None if job is None else read_job_id(job),
        task=query.text("task"),
        queue=query.text("queue"),
        start_at=query.time("start_time"),
        end_at=query.time("end_time"),
        dead_letters=True,
        error_type=query.text("error"),
    )


def owner_asked_for(query: Query, who: Principal) -> str:
    """Whose things to list: one's own, or for administrators those of another."""
    return owner_allowed(query.text("owner"), who)


def owner_allowed(owner: str | None, who: Principal) -> str:
    """The owner that somebody names, oneself when none is named; raises Forbidden for another's."""
    if owner is not None and owner != who.owner and not who.admin:
        raise Forbidden("only an administrator may list what others own")
    return owner or who.owner
