"""Reads the final state of a recorded history from a store in which all work is done."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

import msgspec

from horae.core.model import DISCARDED, Attempt, Job, Run, RunId, State
from horae.core.schedule.parse import schedule_to_wire
from horae.ports.reader import Reader, RunFilter
from horae.proof.checking.findings import job_name, run_name
from horae.proof.checking.history.records import Closed, FinalAttempt, FinalJob, FinalRun, FinalSkip, Line
from horae.proof.checking.listing import all_runs, recurring_jobs, run_pages

AHEAD = timedelta(hours=1)  # planners create runs at most this long before they are due


def label_in_params(params: str) -> str:
    """Return the field `label` of a job's parameters."""
    label = msgspec.json.decode(params).get("label", "")
    return label if isinstance(label, str) else ""


async def read_final(store: Reader, *, now: datetime, at: float) -> AsyncIterator[Line]:
    """Yield every job, run and skip; `now` is the time of the store, and `at` the same moment on the harness' clock."""
    async for job in recurring_jobs(store):
        yield _job(job, at)
        async for skip in _skips(store, job, now, at):
            yield skip
    letters = {run.id async for run in all_runs(store, RunFilter(dead_letters=True))}
    async for page in run_pages(store, RunFilter()):
        for line in await _finals(store, page, letters, at):
            yield line
    yield Closed(at=at)


def _job(job: Job, at: float) -> FinalJob:
    return FinalJob(
        at=at,
        job=job_name(job.id),
        owner=job.owner,
        status=job.status,
        revision=job.revision,
        created_at=job.created_at.timestamp(),
        label=label_in_params(job.spec.params),
        schedule=schedule_to_wire(job.schedule),
        next_slot=_seconds(job.next_fire_at),
    )


async def _skips(store: Reader, job: Job, now: datetime, at: float) -> AsyncIterator[FinalSkip]:
    # Each page contains all skips of the job; its runs are read elsewhere.
    ledger = await store.ledger(job.id, start=job.created_at, end=now + AHEAD, limit=1)
    for skip in ledger.skips:
        yield FinalSkip(
            at=at,
            job=job_name(job.id),
            start=skip.start.timestamp(),
            end=skip.end.timestamp(),
            count=skip.count,
            reason=skip.reason,
        )


async def _finals(store: Reader, runs: Sequence[Run], letters: set[RunId], at: float) -> list[FinalRun]:
    attempts = await store.attempts([run.id for run in runs]) if runs else {}
    return [_run(run, attempts.get(run.id, ()), run.id in letters, at) for run in runs]


def _run(run: Run, attempts: Sequence[Attempt], dead_letter: bool, at: float) -> FinalRun:
    tries = [_attempt(attempt) for attempt in sorted(attempts, key=lambda attempt: attempt.fence)]
    if run.state is State.SUCCEEDED:
        tries.append(_success(run))
    resolved = (
        run.resolution if run.resolution in (None, DISCARDED) else run_name(RunId(run.resolution.removeprefix("run_")))
    )
    return FinalRun(
        at=at,
        run=run_name(run.id),
        job=job_name(run.job_id),
        owner=run.owner,
        status=run.state,
        trigger=run.trigger,
        due_at=run.due_at.timestamp(),
        created_at=run.created_at.timestamp(),
        fence=run.fence,
        attempt=run.attempt,
        slot=_seconds(run.slot),
        reason=run.reason,
        crashes=run.crashes,
        started_at=_seconds(run.first_started_at),
        finished_at=_seconds(run.finished_at),
        attempts=tries,
        resolution=resolved,
        requeue_of=None if run.requeue_of is None else run_name(run.requeue_of),
        dead_letter=dead_letter,
        queue=run.spec.queue,
        ordering_key=run.spec.ordering_key,
        gate=run.gate,
        label=label_in_params(run.spec.params),
        params=run.spec.params,
    )


def _attempt(attempt: Attempt) -> FinalAttempt:
    return FinalAttempt(
        number=attempt.number,
        fence=attempt.fence,
        outcome=attempt.outcome,
        started_at=_seconds(attempt.started_at),
        ended_at=attempt.ended_at.timestamp(),
        error="" if attempt.error is None else attempt.error.type,
        node=attempt.node or "",
    )


def _success(run: Run) -> FinalAttempt:
    return FinalAttempt(
        number=run.attempt,
        fence=run.fence,
        outcome="succeeded",
        started_at=_seconds(run.started_at),
        ended_at=_seconds(run.finished_at),
        node=run.node or "",
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
