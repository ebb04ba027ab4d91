"""The shapes of answers, and how the domain becomes them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from horae.api.http.problems import Problem
from horae.core.job_rules import run_status
from horae.core.model import DISCARDED, Attempt, Job, JobError, Node, Run, State
from horae.core.retry import RetryPolicy
from horae.core.schedule.describe import describe
from horae.core.schedule.evaluate import Schedule, schedule_to_wire
from horae.jobs.backfill import Filling
from horae.queries.jobs import Overview, Upcoming
from horae.queries.ledger import Entry
from horae.queries.why import Explanation


class RetryView(Struct, frozen=True):
    """The delays between attempts."""

    initial_seconds: float
    factor: float
    max_seconds: float
    jitter: bool


class StatusView(Struct):
    """How a run stands; before any run, how its job does."""

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
    """A job."""

    id: str
    owner: str
    created_by: str
    status: str
    task: str
    params: Raw
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


class ErrorView(Struct):
    """Why an attempt failed."""

    type: str
    message: str


class AttemptView(Struct):
    """One try of a run."""

    number: int
    outcome: str  # running, succeeded, failed, timeout, lost, released or cancelled
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    fence: int
    error: ErrorView | None


class RunView(Struct):
    """A run; in lists without its attempts."""

    id: str
    job_id: str
    owner: str
    task: str
    name: str | None
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
    result: Raw
    error: ErrorView | None
    reason: str | None
    created_at: datetime
    requeue_of: str | None  # the dead letter that this run replaces
    resolution: str | None  # of a failed run: `discarded`, or the run that replaced it
    attempts: list[AttemptView] | UnsetType = UNSET


class SlotView(Struct):
    """A slot, or a range of slots with one fate."""

    from_: datetime = msgspec.field(name="from")
    to: datetime
    count: int
    outcome: str
    reason: str | None
    run_id: str | None


class FireView(Struct, omit_defaults=True):
    """A time to come."""

    at: datetime
    note: str | None = None


class UpcomingView(Struct, omit_defaults=True):
    """A time at which a job will run: its slot, and when the run of it is due."""

    at: datetime
    slot: datetime
    note: str | None = None


class PreviewView(Struct):
    """What a schedule means."""

    description: str
    fires: list[FireView]
    warnings: list[str]


class TaskView(Struct):
    """A task and the JSON schema of its parameters."""

    name: str
    schema: Raw


class WorkerView(Struct):
    """A node that runs tasks."""

    id: str
    name: str
    roles: list[str]
    version: str
    queues: list[str]
    concurrency: int
    running: int
    started_at: datetime
    last_seen_at: datetime


class BackfillView(Struct):
    """Slots of the past that are being turned into runs."""

    id: str
    job_id: str
    start: datetime
    end: datetime
    runs: int  # that are to come


class WhyView(Struct):
    """Why a run has not started."""

    reason: str
    detail: str
    expected_at: datetime | None


class BatchItem(Struct, omit_defaults=True):
    """What became of one job of a batch."""

    id: str | None = None
    error: Problem | None = None


class BatchView(Struct):
    """What became of a batch, in its order."""

    items: list[BatchItem]
    accepted: int
    rejected: int


def job_view(overview: Overview) -> JobView:
    """A job as users see it."""
    job, spec, policy = overview.job, overview.job.spec, overview.job.spec.policy
    assert job.schedule is not None
    schedule, description = _schedule_view(job.schedule)
    return JobView(
        id=f"job_{job.id if isinstance(job, Job) else job.job_id}",
        owner=job.owner,
        created_by=job.created_by,
        status=overview.status,
        task=spec.task,
        params=_raw(overview.params),
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
        updated_at=job.updated_at if isinstance(job, Job) else _touched_at(job),
        revision=job.revision,
    )


def status_view(overview: Overview) -> StatusView:
    """How the latest run of a job stands."""
    job, run = overview.job, overview.last_run
    job_id = f"job_{job.id if isinstance(job, Job) else job.job_id}"
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
        status=run_status(run, overview.seen_at),
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        attempt=run.attempt,
        progress=run.progress,
        worker_id=run.node,
        lateness_ms=_lateness(run),
        next_run_at=overview.next_run_at,
    )


def run_view(run: Run, now: datetime, attempts: Sequence[Attempt] | None = None) -> RunView:
    """A run as users see it; `started_at` is when its first attempt began."""
    return RunView(
        id=f"run_{run.id}",
        job_id=f"job_{run.job_id}",
        owner=run.owner,
        task=run.spec.task,
        name=run.spec.name,
        queue=run.spec.queue,
        priority=run.spec.priority,
        status=run_status(run, now),
        trigger=run.trigger,
        slot=run.slot,
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        lateness_ms=_lateness(run),
        attempt=run.attempt,
        crashes=run.crashes,
        worker_id=run.node,
        progress=run.progress,
        result=_raw(run.result),
        error=error_view(run.error),
        reason=run.reason,
        created_at=run.created_at,
        requeue_of=None if run.requeue_of is None else f"run_{run.requeue_of}",
        resolution=_resolution(run),
        attempts=UNSET if attempts is None else _attempt_views(run, attempts),
    )


def slot_view(entry: Entry) -> SlotView:
    """An entry of the ledger as users see it."""
    return SlotView(
        from_=entry.start,
        to=entry.end,
        count=entry.count,
        outcome=entry.outcome,
        reason=entry.reason,
        run_id=None if entry.run_id is None else f"run_{entry.run_id}",
    )


def upcoming_view(upcoming: Upcoming) -> UpcomingView:
    """A time to come as users see it."""
    return UpcomingView(at=upcoming.due_at, slot=upcoming.slot, note=upcoming.note)


def backfill_view(filling: Filling) -> BackfillView:
    """A backfill as users see it."""
    return BackfillView(
        id=f"backfill_{filling.id}",
        job_id=f"job_{filling.job_id}",
        start=filling.start,
        end=filling.end,
        runs=filling.runs,
    )


def why_view(explanation: Explanation) -> WhyView:
    """An explanation as users see it."""
    return WhyView(reason=explanation.cause, detail=explanation.detail, expected_at=explanation.expected_at)


def worker_view(node: Node) -> WorkerView:
    """A worker as users see it."""
    return WorkerView(
        id=node.id,
        name=node.name,
        roles=list(node.roles),
        version=node.version,
        queues=list(node.queues),
        concurrency=node.concurrency,
        running=node.running,
        started_at=node.started_at,
        last_seen_at=node.beat_at,
    )


def _attempt_views(run: Run, attempts: Sequence[Attempt]) -> list[AttemptView]:
    """The attempts that did not succeed, and the one that did or is under way, which its run tells of."""
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


def _touched_at(run: Run) -> datetime:
    return max(filter(None, (run.created_at, run.started_at, run.finished_at)))


def _lateness(run: Run) -> float | None:
    return None if run.first_started_at is None else milliseconds(run.first_started_at - run.due_at)


def milliseconds(duration: timedelta | None) -> float | None:
    """A duration on the wire, where it is a short one."""
    return None if duration is None else round(duration / timedelta(milliseconds=1), 3)


def error_view(error: JobError | None) -> ErrorView | None:
    """An error as users see it."""
    """Why an attempt failed, as users see it."""
    return None if error is None else ErrorView(error.type, error.message)


@lru_cache(1024)
def retry_view(retry: RetryPolicy) -> RetryView:
    """A retry policy as users see it."""
    return RetryView(
        initial_seconds=retry.initial.total_seconds(),
        factor=retry.factor,
        max_seconds=retry.maximum.total_seconds(),
        jitter=retry.jitter,
    )


@lru_cache(4096)
def _schedule_view(schedule: Schedule) -> tuple[Raw, str]:
    return Raw(msgspec.json.encode(schedule_to_wire(schedule))), describe(schedule)


_NULL = Raw(b"null")


def _raw(text: str | None) -> Raw:
    return _NULL if text is None else Raw(text.encode())


def seconds_of(duration: timedelta | None) -> float | None:
    """A duration on the wire."""
    return None if duration is None else duration.total_seconds()
