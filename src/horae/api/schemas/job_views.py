"""Jobs, their status, slots and coming times as responses show them."""

from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from horae.api.schemas.run_views import lateness_ms
from horae.api.schemas.wire import raw_json, seconds_of
from horae.core.decisions.retry import RetryPolicy
from horae.core.job_rules import run_status
from horae.core.model import State
from horae.core.schedule.describe import describe
from horae.core.schedule.parse import schedule_to_wire
from horae.core.schedule.types import Schedule
from horae.queries.jobs import Overview, UpcomingRun
from horae.queries.ledger import SlotEntry


class RetryView(Struct, frozen=True):
    """The delays between attempts."""

    initial_seconds: float
    factor: float
    max_seconds: float
    jitter: bool


class StatusView(Struct):
    """The status of a job's latest due run; `scheduled` without a run before the first is due."""

    job_id: str
    run_id: str | None
    status: str
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    progress: float | None
    worker_id: str | None
    lateness_ms: float | None
    next_run_at: datetime | None


class JobView(Struct):
    """A job: which task to run, when, and how. Lists leave out parameters that are too large (`omitted`)."""

    id: str
    owner: str
    created_by: str
    status: str
    task: str
    params: Raw | UnsetType
    name: str | None
    key: str | None
    labels: dict[str, str]
    schedule: Raw
    description: str
    queue: str
    priority: int
    ordering_key: str | None
    on_failure: str
    max_retries: int
    retry: RetryView
    timeout_seconds: float | None
    start_within_seconds: float | None
    overlap: str
    misfire: str
    catchup_seconds: float
    next_run_at: datetime | None
    last_run: StatusView | None
    created_at: datetime
    updated_at: datetime
    revision: int
    omitted: tuple[str, ...] | UnsetType = UNSET  # the names of values that are too large for a list


class SlotView(Struct):
    """A slot, or a range of consecutive slots with the same outcome."""

    from_: datetime = msgspec.field(name="from")
    to: datetime
    count: int
    outcome: str
    reason: str | None
    run_id: str | None


class UpcomingView(Struct, omit_defaults=True):
    """A coming run of a job: when it is due, and its slot, which jitter may delay."""

    at: datetime
    slot: datetime
    note: str | None = None


def job_view(overview: Overview) -> JobView:
    """Return a job as responses show it."""
    job, spec, policy = overview.job, overview.job.spec, overview.job.spec.policy
    schedule, description = _schedule_view(job.schedule)
    return JobView(
        id=f"job_{job.id}",
        owner=job.owner,
        created_by=job.created_by,
        status=job.status,
        task=spec.task,
        params=UNSET if overview.params is None else raw_json(overview.params),
        name=spec.name,
        key=spec.key,
        labels=dict(spec.labels),
        schedule=schedule,
        description=description,
        queue=spec.queue,
        priority=spec.priority,
        ordering_key=spec.ordering_key,
        on_failure=policy.on_failure,
        max_retries=policy.retry.max_retries,
        retry=retry_view(policy.retry),
        timeout_seconds=seconds_of(policy.timeout),
        start_within_seconds=seconds_of(policy.start_within),
        overlap=policy.overlap,
        misfire=policy.misfire,
        catchup_seconds=policy.catchup.total_seconds(),
        next_run_at=overview.next_run_at,
        last_run=None if overview.last_run is None else status_view(overview),
        created_at=job.created_at,
        updated_at=job.updated_at,
        revision=job.revision,
        omitted=("params",) if overview.params is None else UNSET,
    )


def status_view(overview: Overview) -> StatusView:
    """Return the status of a job's latest due run."""
    job, run = overview.job, overview.last_run
    job_id = f"job_{job.id}"
    if run is None:
        return StatusView(
            job_id=job_id,
            run_id=None,
            status=State.SCHEDULED,
            due_at=None,
            started_at=None,
            finished_at=None,
            attempt=0,
            progress=None,
            worker_id=None,
            lateness_ms=None,
            next_run_at=overview.next_run_at,
        )
    return StatusView(
        job_id=job_id,
        run_id=f"run_{run.id}",
        status=run_status(run, overview.read_at),
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        attempt=run.attempt,
        progress=run.progress,
        worker_id=run.node,
        lateness_ms=lateness_ms(run),
        next_run_at=overview.next_run_at,
    )


def slot_view(entry: SlotEntry) -> SlotView:
    """Return an entry of the ledger as responses show it."""
    return SlotView(
        from_=entry.start,
        to=entry.end,
        count=entry.count,
        outcome=entry.outcome,
        reason=entry.reason,
        run_id=None if entry.run_id is None else f"run_{entry.run_id}",
    )


def upcoming_view(upcoming: UpcomingRun) -> UpcomingView:
    """Return a coming run as responses show it."""
    return UpcomingView(at=upcoming.due_at, slot=upcoming.slot, note=upcoming.note)


@lru_cache(1024)
def retry_view(retry: RetryPolicy) -> RetryView:
    """Return a retry policy as responses show it."""
    return RetryView(
        initial_seconds=retry.initial.total_seconds(),
        factor=retry.factor,
        max_seconds=retry.maximum.total_seconds(),
        jitter=retry.jitter,
    )


@lru_cache(4096)
def _schedule_view(schedule: Schedule) -> tuple[Raw, str]:
    return Raw(msgspec.json.encode(schedule_to_wire(schedule))), describe(schedule)
