"""Accounting for slots when somebody acts on a job: those up to now before it changes, the first horizon afterwards."""

from datetime import UTC, datetime, timedelta

from horae.core.decisions.firing import MAX_UNSTARTED, Due, Firing, fire
from horae.core.ids import NewId
from horae.core.job_rules import close_pause, fired, give_up
from horae.core.model import Job, JobStatus, State
from horae.jobs.optimistic import TRIES, always_changing
from horae.planning import write_firings, write_pages
from horae.ports.clock import Clock
from horae.ports.reader import RunFilter
from horae.ports.store import Store

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # users may fill slots from long before the job was created


class Accounting:
    """Fires a job outside of the planner's round; every step is the same compare-and-set."""

    def __init__(self, store: Store, clock: Clock, *, new_id: NewId, horizon: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._horizon = horizon

    async def account_for_past(self, job: Job, now: datetime, *, for_good: bool = False) -> Job | None:
        """The job after its slots up to now were accounted for by the schedule they belong to; None on a lost race.

        `for_good` when that schedule ends now: then what it is still catching up with, or filling, is given up.
        """
        while job.next_fire_at is not None and job.next_fire_at <= now:
            if job.status is JobStatus.PAUSED:
                firing = close_pause(job, now=now, new_id=self._new_id)
            else:
                firing = fire(Due(job=job), now=now, horizon=timedelta(), new_id=self._new_id)
            after = await self.fire(firing)
            if after is None:
                return None
            job = after
        return await self._give_up_filling(job) if for_good else job

    async def give_up_filling(self, job: Job) -> None:
        """Give up the backfills of a job that is over: what was begun beside its end, and nothing can follow."""
        for _ in range(TRIES):
            if await self._give_up_filling(job) is not None:
                return
        raise always_changing(f"job_{job.id}")

    async def _give_up_filling(self, job: Job) -> Job | None:
        """The job after its backfills were given up; None on a lost race."""
        ledger = await self._store.ledger(job.id, start=_EARLIEST, end=self._clock.now(), limit=1)
        ended = await write_pages(self._store, [give_up(job, backfill) for backfill in ledger.backfills])
        return job if all(ended) else None  # else a planner turned some of it into runs meanwhile

    async def fire_ahead(self, job: Job) -> Job:
        """Plan the first horizon at once; when a planner was faster that is just as well."""
        which = RunFilter(job_id=job.id, states=frozenset({State.SCHEDULED, State.CLAIMED}))
        waiting = await self._store.list_runs(which, cursor=None, limit=MAX_UNSTARTED)
        unstarted = len(waiting.items)
        due = Due(job=job, unstarted=unstarted, live=unstarted)
        firing = fire(due, now=self._clock.now(), horizon=self._horizon, new_id=self._new_id)
        return await self.fire(firing) or job

    async def fire(self, firing: Firing) -> Job | None:
        """The job after a firing; None when somebody moved it first."""
        [applied] = await write_firings(self._store, [firing])
        return fired(firing) if applied else None
