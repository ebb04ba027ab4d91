"""Fires a job outside of the planner's round: its slots up to now before a change, the first horizon after it."""

from datetime import UTC, datetime, timedelta

from horae.core.decisions.firing import MAX_UNSTARTED, Due, Firing, fire
from horae.core.effects import fired_job
from horae.core.ids import NewId
from horae.core.job_rules import cancel_backfill, close_pause
from horae.core.model import Job, JobStatus, State
from horae.jobs.optimistic import TRIES, always_changing
from horae.planning import write_firings, write_pages
from horae.ports.clock import Clock
from horae.ports.reader import RunFilter
from horae.ports.store import Store

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # users may backfill slots from long before the job was created


class CatchUp:
    """Accounts for the slots of a job; every step is the same compare-and-set as a planner's."""

    def __init__(self, store: Store, clock: Clock, *, new_id: NewId, horizon: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._horizon = horizon

    async def until(self, job: Job, now: datetime, *, schedule_ends: bool = False) -> Job | None:
        """Account for the slots up to now by the schedule they belong to; return the job, or None on a conflict.

        With `schedule_ends` the backfills of that schedule are cancelled.
        """
        while job.next_fire_at is not None and job.next_fire_at <= now:
            if job.status is JobStatus.PAUSED:
                firing = close_pause(job, now=now, new_id=self._new_id)
            else:
                firing = fire(Due(job=job), now=now, horizon=timedelta(), new_id=self._new_id)
            after = await self.write(firing)
            if after is None:
                return None
            job = after
        return job if not schedule_ends or await self._cancel_backfills(job) else None

    async def cancel_backfills(self, job: Job) -> None:
        """Cancel the backfills of a job that has ended, also those that were started while it ended."""
        for _ in range(TRIES):
            if await self._cancel_backfills(job):
                return
        raise always_changing(f"job_{job.id}")

    async def _cancel_backfills(self, job: Job) -> bool:
        """Cancel the backfills of a job; False when a planner turned slots of one into runs meanwhile."""
        ledger = await self._store.ledger(job.id, start=_EARLIEST, end=self._clock.now(), limit=1)
        return all(await write_pages(self._store, [cancel_backfill(job, backfill) for backfill in ledger.backfills]))

    async def fire_ahead(self, job: Job) -> Job:
        """Plan the first horizon at once, unless a planner was faster."""
        which = RunFilter(job_id=job.id, states=frozenset({State.SCHEDULED, State.CLAIMED}))
        waiting = await self._store.list_runs(which, cursor=None, limit=MAX_UNSTARTED)
        unstarted = len(waiting.items)
        due = Due(job=job, unstarted=unstarted, live=unstarted)
        firing = fire(due, now=self._clock.now(), horizon=self._horizon, new_id=self._new_id)
        return await self.write(firing) or job

    async def write(self, firing: Firing) -> Job | None:
        """Write a firing and return the job after it; None on a conflict."""
        [applied] = await write_firings(self._store, [firing])
        return fired_job(firing) if applied else None
