"""Backfills: a recurring job run for slots of the past, whatever became of them before."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.effects import begin_backfill
from horae.core.errors import Conflict, Invalid
from horae.core.ids import NewId
from horae.core.model import Backfill, Job, JobId, JobStatus, Trigger
from horae.core.records import IdempotencyRecord
from horae.core.schedule.evaluate import count_between, last_before, next_after
from horae.core.schedule.timestamps import rfc3339
from horae.jobs.idempotency import Issue, keep
from horae.jobs.optimistic import find, over, refuse_over
from horae.ports.clock import Clock
from horae.ports.store import Store

MAX_RUNS = 100_000

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """A backfill that was begun."""

    id: str
    job_id: JobId
    start: datetime
    end: datetime
    runs: int  # still to come


class Backfilling:
    """Begins backfills; planners turn them into runs page by page."""

    def __init__(self, store: Store, clock: Clock, *, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    async def begin(
        self, job_id: JobId, start: datetime, end: datetime, *, owner: str | None, issue: Issue[Filling] | None
    ) -> Filling | IdempotencyRecord:
        """Fill the slots with `start <= slot <= end`, or answer the record of an earlier request."""
        job = await find(self._store, job_id, owner=owner)
        if not job.recurring:
            raise Conflict(f"job_{job_id} runs once and has no slots to fill; run it again with /run")
        if job.status is JobStatus.CANCELLED:
            refuse_over(job)
        now = self._clock.now()
        filling = Filling(id=self._new_id(), job_id=job_id, start=start, end=end, runs=_count(job, start, end, now))
        record = None if issue is None else await issue(filling)
        if filling.runs == 0:
            return filling if record is None else await self._keep(filling, record)
        [refusal] = await self._store.apply([begin_backfill(_backfill(job, filling, now), record)])
        if refusal is None:
            return filling
        if isinstance(refusal.found, IdempotencyRecord):
            return refusal.found
        raise over(job_id, JobStatus.CANCELLED)

    async def _keep(self, filling: Filling, record: IdempotencyRecord) -> Filling | IdempotencyRecord:
        held = await keep(self._store, record)
        return filling if held == record else held


def _count(job: Job, start: datetime, end: datetime, now: datetime) -> int:
    if start > end:
        raise Invalid("start is after end", pointer="/start")
    if end > now:
        raise Invalid(f"end is in the future; a backfill reaches up to now ({rfc3339(now)})", pointer="/end")
    count = count_between(job.schedule, start, end + _TICK)
    if count > MAX_RUNS:
        raise Invalid(
            f"that would be {count} runs; at most {MAX_RUNS} are begun at a time, so split the range", pointer="/start"
        )
    return count


def _backfill(job: Job, filling: Filling, now: datetime) -> Backfill:
    first = next_after(job.schedule, filling.start - _TICK)
    last = last_before(job.schedule, filling.end + _TICK, not_before=filling.start)
    assert first is not None
    assert last is not None
    return Backfill(
        id=filling.id,
        job_id=job.id,
        trigger=Trigger.BACKFILL,
        start=first,
        end=last,
        plan_at=now,
        created_at=now,
    )
