"""Which jobs and runs a list asks for."""

from dataclasses import replace
from datetime import datetime

from horae.api.auth import Principal
from horae.api.problems import Forbidden
from horae.api.query import Query
from horae.core.model import JobId, JobStatus, State
from horae.store import JobFilter, RunFilter

JOB_FILTERS = ("status", "last_run_status", "task", "name", "key", "queue", "label", "owner", "q")
RUN_FILTERS = ("job_id", "status", "owner", "task", "queue", "start_time", "end_time")

_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})
_HELD = frozenset({State.CLAIMED, State.RUNNING})
_SAME_NAME = (State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED)
RUN_STATUSES: dict[str, RunFilter] = {
    "scheduled": RunFilter(states=_UNSTARTED, due=False, stopping=False),
    "queued": RunFilter(states=_UNSTARTED, due=True, stopping=False),
    "running": RunFilter(states=frozenset({State.RUNNING}), stopping=False),
    "cancelling": RunFilter(states=_HELD, stopping=True),
    **{state: RunFilter(states=frozenset({state})) for state in _SAME_NAME},
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


def owner_asked_for(query: Query, who: Principal) -> str:
    """Whose things to list: one's own, or for administrators those of another."""
    owner = query.text("owner")
    if owner is not None and owner != who.owner and not who.admin:
        raise Forbidden("only an administrator may list what others own")
    return owner or who.owner
