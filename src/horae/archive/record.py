"""The lines of the archive: an ended run with its attempts, as REST shows it, and what a restore needs beside that."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from horae.core.decisions.retry import RetryPolicy
from horae.core.model import (
    Attempt,
    JobError,
    JobId,
    Misfire,
    NodeId,
    OnFailure,
    Outcome,
    Overlap,
    Policy,
    Reason,
    Run,
    RunId,
    Spec,
    State,
    Trigger,
)
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.types import Schedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINS = b'{"id":"run_'  # of every line


class Archived(NamedTuple):
    """A run as the archive has it, with its parameters whole."""

    run: Run
    attempts: Sequence[Attempt]
    params_blob: str | None  # the blob that held its parameters while it was in the store


class ErrorLine(Struct):
    """An error."""

    type: str
    message: str


class AttemptLine(Struct):
    """An attempt that did not succeed; the successful one is the run itself."""

    number: int
    outcome: str
    started_at: datetime | None
    finished_at: datetime
    worker_id: str | None
    fence: int
    error: ErrorLine | None


class RetryLine(Struct):
    """When failed attempts were retried."""

    initial_seconds: float
    factor: float
    max_seconds: float
    jitter: bool


class RunLine(Struct):
    """One line: names and values are those of `GET /v1/runs/{id}` and of a job; secrets are never among them."""

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
    ordering_key: str | None
    status: str
    trigger: str
    slot: datetime | None
    due_at: datetime
    started_at: datetime | None  # of the first attempt
    finished_at: datetime
    lateness_ms: float | None
    attempt: int
    crashes: int
    worker_id: str | None
    progress: float | None
    result: Raw
    error: ErrorLine | None
    reason: str | None
    created_at: datetime
    requeue_of: str | None
    resolution: str | None
    params: Raw
    attempts: list[AttemptLine]
    schedule: dict[str, Any] | None  # of its job, if that still had one
    max_retries: int
    retry: RetryLine
    timeout_seconds: float | None
    start_within_seconds: float | None
    overlap: str
    misfire: str
    catchup_seconds: float
    on_failure: str
    last_started_at: datetime | None
    wake_at: datetime
    gate: str | None
    fence: int
    revision: int
    params_blob: str | None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RunLine)


def encode(run: Run, attempts: Sequence[Attempt], *, params: str, schedule: Schedule | None) -> bytes:
    """Return a line; `params` are whole, and `schedule` is that of the job."""
    assert run.finished_at is not None, "only ended runs are archived"
    spec = run.spec
    lateness = None if run.first_started_at is None else (run.first_started_at - run.due_at) / timedelta(milliseconds=1)
    line = RunLine(
        id=f"run_{run.id}",
        job_id=f"job_{run.job_id}",
        owner=run.owner,
        created_by=run.created_by,
        task=spec.task,
        name=spec.name,
        key=spec.key,
        labels=dict(spec.labels),
        queue=spec.queue,
        priority=spec.priority,
        ordering_key=spec.ordering_key,
        status=run.state,
        trigger=run.trigger,
        slot=run.slot,
        due_at=run.due_at,
        started_at=run.first_started_at,
        finished_at=run.finished_at,
        lateness_ms=lateness,
        attempt=run.attempt,
        crashes=run.crashes,
        worker_id=run.node,
        progress=run.progress,
        result=_on_one_line(run.result),
        error=_error_line(run.error),
        reason=run.reason,
        created_at=run.created_at,
        requeue_of=run.requeue_of,
        resolution=run.resolution,
        params=_on_one_line(params),
        attempts=[_attempt_line(attempt) for attempt in attempts],
        schedule=None if schedule is None else schedule_to_wire(schedule),
        **_policy_fields(spec.policy),
        last_started_at=run.started_at,
        wake_at=run.wake_at,
        gate=run.gate,
        fence=run.fence,
        revision=run.revision,
        params_blob=spec.params_blob,
    )
    return _ENCODER.encode(line) + b"\n"


def decode(text: bytes) -> Archived:
    """Return the run of a line."""
    line = _DECODER.decode(text)
    ident = line.id.removeprefix("run_")
    run = Run(
        id=RunId(ident),
        job_id=JobId(line.job_id.removeprefix("job_")),
        owner=line.owner,
        created_by=line.created_by,
        spec=_spec(line),
        due_at=line.due_at,
        wake_at=line.wake_at,
        created_at=line.created_at,
        # The run of a one-shot has the id of its job; the schedule of every other belongs to the job alone.
        schedule=_schedule(line.schedule) if line.job_id == f"job_{ident}" else None,
        trigger=Trigger(line.trigger),
        slot=line.slot,
        gate=line.gate,
        state=State(line.status),
        node=None if line.worker_id is None else NodeId(line.worker_id),
        fence=line.fence,
        attempt=line.attempt,
        crashes=line.crashes,
        revision=line.revision,
        progress=line.progress,
        error=_error(line.error),
        result=_text(line.result),
        reason=None if line.reason is None else Reason(line.reason),
        first_started_at=line.started_at,
        started_at=line.last_started_at,
        finished_at=line.finished_at,
        resolution=line.resolution,
        requeue_of=None if line.requeue_of is None else RunId(line.requeue_of),
    )
    return Archived(run, [_attempt(run.id, each) for each in line.attempts], line.params_blob)


def id_of(line: bytes) -> RunId:
    """Return the id of the run of a line, without decoding the rest."""
    return RunId(line[len(_BEGINS) : len(_BEGINS) + 32].decode())


def beginning_of(run_id: RunId) -> bytes:
    """Return what the line of a run begins with."""
    return _BEGINS + run_id.encode() + b'"'


def _spec(line: RunLine) -> Spec:
    retry = RetryPolicy(
        max_retries=line.max_retries,
        initial=timedelta(seconds=line.retry.initial_seconds),
        factor=line.retry.factor,
        maximum=timedelta(seconds=line.retry.max_seconds),
        jitter=line.retry.jitter,
    )
    policy = Policy(
        retry=retry,
        timeout=_duration(line.timeout_seconds),
        start_within=_duration(line.start_within_seconds),
        overlap=Overlap(line.overlap),
        misfire=Misfire(line.misfire),
        catchup=timedelta(seconds=line.catchup_seconds),
        on_failure=OnFailure(line.on_failure),
    )
    return Spec(
        task=line.task,
        params=bytes(line.params).decode(),
        name=line.name,
        key=line.key,
        labels=line.labels,
        queue=line.queue,
        priority=line.priority,
        ordering_key=line.ordering_key,
        policy=policy,
    )


def _policy_fields(policy: Policy) -> dict[str, Any]:
    retry = policy.retry
    return {
        "max_retries": retry.max_retries,
        "retry": RetryLine(retry.initial.total_seconds(), retry.factor, retry.maximum.total_seconds(), retry.jitter),
        "timeout_seconds": _seconds(policy.timeout),
        "start_within_seconds": _seconds(policy.start_within),
        "overlap": policy.overlap,
        "misfire": policy.misfire,
        "catchup_seconds": policy.catchup.total_seconds(),
        "on_failure": policy.on_failure,
    }


def _attempt_line(attempt: Attempt) -> AttemptLine:
    return AttemptLine(
        attempt.number,
        attempt.outcome,
        attempt.started_at,
        attempt.ended_at,
        attempt.node,
        attempt.fence,
        _error_line(attempt.error),
    )


def _attempt(run_id: RunId, line: AttemptLine) -> Attempt:
    return Attempt(
        run_id=run_id,
        number=line.number,
        fence=line.fence,
        node=None if line.worker_id is None else NodeId(line.worker_id),
        started_at=line.started_at,
        ended_at=line.finished_at,
        outcome=Outcome(line.outcome),
        error=_error(line.error),
    )


def _on_one_line(text: str | None) -> Raw:
    """Return JSON without line breaks; that of users may be laid out in lines."""
    return Raw(b"null") if text is None else Raw(msgspec.json.format(text.encode(), indent=-1))


def _text(value: Raw) -> str | None:
    text = bytes(value).decode()
    return None if text == "null" else text


def _error_line(error: JobError | None) -> ErrorLine | None:
    return None if error is None else ErrorLine(error.type, error.message)


def _error(line: ErrorLine | None) -> JobError | None:
    return None if line is None else JobError(type=line.type, message=line.message)


def _schedule(wire: dict[str, Any] | None) -> Schedule | None:
    return None if wire is None else parse_schedule(wire, now=_EPOCH)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
