"""Starts backfills: runs of a recurring job for slots of the past, whether they ran before or not."""

from dataclasses import dataclass
from datetime import datetime

from horae.core.decisions.firing import new_backfill
from horae.core.effects import begin_backfill, keep_record
from horae.core.errors import Conflict, Invalid
from horae.core.ids import NewId
from horae.core.model import Job, JobId, JobStatus, Trigger
from horae.core.records import IdempotencyRecord
from horae.core.schedule.evaluate import SlotRange, range_between
from horae.core.schedule.timestamps import TICK, rfc3339
from horae.jobs.idempotency import Issue
from horae.jobs.optimistic import job_ended, refuse_cancelled
from horae.lookup import get_job
from horae.ports.clock import Clock
from horae.ports.permits import Permit, permit_all
from horae.ports.store import Store

MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """A backfill that was started."""

    id: str
    job_id: JobId
    start: datetime
    end: datetime
    runs: int  # still to come


class Backfiller:
    """Starts backfills; planners turn them into runs page by page."""

    def __init__(self, store: Store, clock: Clock, *, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    async def backfill(
        self,
        job_id: JobId,
        start: datetime,
        end: datetime,
        *,
        owner: str | None,
        issue: Issue[Filling] | None = None,
        permit: Permit = permit_all,
    ) -> Filling | IdempotencyRecord:
        """Run the slots with `start <= slot <= end`, or return the record of an earlier request."""
        job = await get_job(self._store, job_id, owner=owner)
        permit(job.spec)
        if not job.recurring:
            raise Conflict(f"job_{job_id} runs once and has no slots to fill; run it again with /run")
        refuse_cancelled(job)
        now = self._clock.now()
        slots = _slots(job, start, end, now)
        runs = 0 if slots is None else slots.count
        filling = Filling(id=self._new_id(), job_id=job_id, start=start, end=end, runs=runs)
        record = None if issue is None else await issue(filling)
        if slots is not None:
            change = begin_backfill(new_backfill(job, slots, Trigger.BACKFILL, now, filling.id), record)
        elif record is not None:
            change = keep_record(record)
        else:
            return filling
        [refusal] = await self._store.apply([change])
        if refusal is None:
            return filling
        if isinstance(refusal.found, IdempotencyRecord):
            return refusal.found
        raise job_ended(job_id, JobStatus.CANCELLED)


def _slots(job: Job, start: datetime, end: datetime, now: datetime) -> SlotRange | None:
    """Return the slots to run; raises Invalid when the range is not in the past, or too large."""
    if start > end:
        raise Invalid("start is after end", pointer="/start")
    if end > now:
        raise Invalid(f"end is in the future; a backfill reaches up to now ({rfc3339(now)})", pointer="/end")
    slots = range_between(job.schedule, start, end + TICK)
    if slots is not None and slots.count > MAX_RUNS:
        raise Invalid(
            f"that would be {slots.count} runs; at most {MAX_RUNS} are begun at a time, so split the range",
            pointer="/start",
        )
    return slots
