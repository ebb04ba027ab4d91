"""Runs and jobs as plain values for tests, with the field names of the REST API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from horae.core.job_rules import next_run_at, run_status
from horae.core.model import Attempt, Job, JobError, Run
from horae.core.schedule.describe import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """An attempt that did not succeed."""

    number: int
    outcome: str
    started_at: datetime | None
    finished_at: datetime
    error: JobError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run; its `status` is `succeeded`, `failed`, `retrying`, `scheduled` and so on."""

    id: str
    job_id: str
    task: str
    params: Mapping[str, Any]
    status: str
    trigger: str
    slot: datetime | None
    due_at: datetime
    started_at: datetime | None  # of the first attempt
    finished_at: datetime | None
    attempt: int
    attempts: Sequence[AttemptView]
    crashes: int
    progress: float | None
    result: Any
    error: JobError | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job."""

    id: str
    task: str
    params: Mapping[str, Any]
    name: str | None
    key: str | None
    status: str
    description: str  # the schedule in words
    next_run_at: datetime | None
    revision: int


def run_view(run: Run, attempts: Sequence[Attempt], params: str, now: datetime) -> RunView:
    """The view of a run."""
    return RunView(
        id=f"run_{run.id}",
        job_id=f"job_{run.job_id}",
        task=run.spec.task,
        params=msgspec.json.decode(params),
        status=str(run_status(run, now)),
        trigger=str(run.trigger),
        slot=run.slot,
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        attempt=run.attempt,
        attempts=tuple(_attempt_view(attempt) for attempt in attempts),
        crashes=run.crashes,
        progress=run.progress,
        result=None if run.result is None else msgspec.json.decode(run.result),
        error=run.error,
        reason=None if run.reason is None else str(run.reason),
    )


def job_view(job: Job, params: str, now: datetime) -> JobView:
    """The view of a job."""
    return JobView(
        id=f"job_{job.id}",
        task=job.spec.task,
        params=msgspec.json.decode(params),
        name=job.spec.name,
        key=job.spec.key,
        status=str(job.status),
        description=describe(job.schedule),
        next_run_at=next_run_at(job, now),
        revision=job.revision,
    )


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        outcome=str(attempt.outcome),
        started_at=attempt.started_at,
        finished_at=attempt.ended_at,
        error=attempt.error,
    )
