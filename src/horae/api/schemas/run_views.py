"""Runs and their attempts as responses show them."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType

from horae.api.schemas.wire import milliseconds_of, raw_json
from horae.core.job_rules import run_status
from horae.core.model import DISCARDED, Attempt, JobError, Run, State
from horae.queries.listed import Omitted, listed_run


class ErrorView(Struct):
    """Why an attempt failed: `timeout`, `crash` or the name of the exception, and its message."""

    type: str
    message: str


class AttemptView(Struct):
    """One attempt of a run."""

    number: int
    outcome: str  # running, succeeded, failed, timeout, lost, released or cancelled
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    fence: int
    error: ErrorView | None


class RunView(Struct):
    """A run: one occurrence of a job. Lists leave out its attempts, and values that are too large (`omitted`)."""

    id: str
    job_id: str
    owner: str
    created_by: str
    task: str
    name: str | None
    key: str | None
    labels: dict[str, str]
    queue: str
    priority: int
    status: str
    trigger: str
    slot: datetime | None
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lateness_ms: float | None
    attempt: int
    crashes: int
    worker_id: str | None
    progress: float | None
    result: Raw | UnsetType
    error: ErrorView | None
    reason: str | None
    created_at: datetime
    requeue_of: str | None  # the dead letter that this run replaces
    resolution: str | None  # of a failed run: `discarded`, or the run that replaced it
    params: Raw | UnsetType = UNSET
    omitted: tuple[str, ...] | UnsetType = UNSET  # the names of values that are too large for a list
    attempts: list[AttemptView] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET  # true: the run is in the archive, and no longer in the store


def listed_run_view(run: Run, now: datetime, attempts: Sequence[Attempt] | None = None) -> RunView:
    """Return a run as lists show it, without values that are too large for them."""
    listed, omitted = listed_run(run)
    return run_view(listed, now, attempts, omitted=omitted)


def run_view(
    run: Run,
    now: datetime,
    attempts: Sequence[Attempt] | None = None,
    *,
    params: str | None = None,
    omitted: Omitted = (),
    archived: bool = False,
) -> RunView:
    """Return a run as responses show it; `started_at` is the start of its first attempt.

    `params` None means those in the run itself; `omitted` names what a list has left out of it.
    """
    return RunView(
        id=f"run_{run.id}",
        job_id=f"job_{run.job_id}",
        owner=run.owner,
        created_by=run.created_by,
        task=run.spec.task,
        name=run.spec.name,
        key=run.spec.key,
        labels=dict(run.spec.labels),
        queue=run.spec.queue,
        priority=run.spec.priority,
        status=run_status(run, now),
        trigger=run.trigger,
        slot=run.slot,
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        lateness_ms=lateness_ms(run),
        attempt=run.attempt,
        crashes=run.crashes,
        worker_id=run.node,
        progress=run.progress,
        result=UNSET if "result" in omitted else raw_json(run.result),
        error=error_view(run.error),
        reason=run.reason,
        created_at=run.created_at,
        requeue_of=None if run.requeue_of is None else f"run_{run.requeue_of}",
        resolution=_resolution(run),
        params=UNSET if "params" in omitted else raw_json(run.spec.params if params is None else params),
        omitted=omitted or UNSET,
        attempts=UNSET if attempts is None else _attempt_views(run, attempts),
        archived=archived or UNSET,
    )


def error_view(error: JobError | None) -> ErrorView | None:
    """Return the error of a run or attempt as responses show it."""
    return None if error is None else ErrorView(error.type, error.message)


def lateness_ms(run: Run) -> float | None:
    """Return the time from the due time to the start of the first attempt; None before it has started."""
    return None if run.first_started_at is None else milliseconds_of(run.first_started_at - run.due_at)


def _attempt_views(run: Run, attempts: Sequence[Attempt]) -> list[AttemptView]:
    """Return the stored attempts and, after them, the running or successful one, which only the run itself records."""
    views = [
        AttemptView(
            number=attempt.number,
            outcome=attempt.outcome,
            started_at=attempt.started_at,
            finished_at=attempt.ended_at,
            worker_id=attempt.node,
            fence=attempt.fence,
            error=error_view(attempt.error),
        )
        for attempt in attempts
    ]
    if run.state in (State.RUNNING, State.SUCCEEDED):
        views.append(
            AttemptView(
                number=run.attempt,
                outcome=run.state,
                started_at=run.started_at,
                finished_at=run.finished_at,
                worker_id=run.node,
                fence=run.fence,
                error=None,
            )
        )
    return views


def _resolution(run: Run) -> str | None:
    return f"run_{run.resolution}" if run.resolution not in (None, DISCARDED) else run.resolution
