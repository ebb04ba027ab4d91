"""Cancelling jobs with the runs that wait for them."""

from horae.core.events import EventKind
from horae.core.model import Job, JobId, JobStatus, Reason
from horae.core.values import replace
from horae.jobs.catch_up import Accounting
from horae.jobs.optimistic import act, find, next_revision, refuse_over, write_change
from horae.jobs.stop import Stopper
from horae.ports.clock import Clock
from horae.ports.store import Store


class Cancelling:
    """Ends jobs for good."""

    def __init__(self, *, store: Store, clock: Clock, accounting: Accounting, stopper: Stopper) -> None:
        self._store = store
        self._clock = clock
        self._accounting = accounting
        self._stopper = stopper

    async def cancel(self, job_id: JobId, *, keep_running: bool, owner: str | None) -> Job:
        """End the job and its waiting runs, and unless they are kept its running ones."""

        async def change(job: Job) -> Job | None:
            if job.status is JobStatus.CANCELLED:
                await self._end_rest(job, keep_running=keep_running)  # what an earlier cancel left undone
            refuse_over(job)
            return await self._cancel_recurring(job) if job.recurring else job

        job = await act(self._store, job_id, owner, change)
        await self._end_rest(job, keep_running=keep_running)
        return job if job.recurring else await find(self._store, job_id, owner=owner)

    async def _end_rest(self, job: Job, *, keep_running: bool) -> None:
        """End what a job has left once it is over, of which nothing more can come: what it fills, then its runs."""
        if job.recurring:
            await self._accounting.give_up_filling(job)
        await self._stopper.stop_job(job.id, keep_running=keep_running)

    async def _cancel_recurring(self, job: Job) -> Job | None:
        now = self._clock.now()
        up_to_date = await self._accounting.account_for_past(job, now, for_good=True)
        if up_to_date is None:
            return None
        changed = await write_change(
            self._store,
            up_to_date,
            replace(next_revision(up_to_date, now), status=JobStatus.CANCELLED, next_fire_at=None, plan_at=None),
            retract_after=now,
            stop=Reason.CANCELLED,
            event=EventKind.JOB_CANCELLED,
        )
        return None if changed is None else changed.job
