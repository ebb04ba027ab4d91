"""Pauses and resumes jobs, one by one or many at once."""

from collections.abc import Sequence
from datetime import datetime

from horae.core.changes import Change
from horae.core.decisions.results import Settled, skip
from horae.core.effects import change_one_shot
from horae.core.errors import Conflict
from horae.core.events import EventKind
from horae.core.ids import NewId
from horae.core.job_rules import job_of, resume
from horae.core.model import Job, JobId, JobStatus, Misfire, Reason, Run
from horae.core.values import replace
from horae.jobs.bulk.together import change_one_shots, count_changed
from horae.jobs.catch_up import CatchUp
from horae.jobs.optimistic import next_revision, refuse_ended, refuse_started, update, write_change
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.permits import Permit, permit_all
from horae.ports.store import Store


class Pauser:
    """Pauses and resumes recurring jobs and one-shots."""

    def __init__(self, *, store: Store, clock: Clock, catch_up: CatchUp, metrics: Metrics, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._catch_up = catch_up
        self._metrics = metrics
        self._new_id = new_id

    async def pause(self, job_id: JobId, *, owner: str | None) -> Job:
        """Run no further slot until the job is resumed; a run that is already due still runs."""

        async def change(job: Job) -> Job | None:
            refuse_ended(job)
            if job.status is JobStatus.PAUSED:
                return job
            return await (self._pause_recurring(job) if job.run is None else self._pause_one_shot(job.run))

        return await update(self._store, job_id, owner, change)

    async def _pause_recurring(self, job: Job) -> Job | None:
        now = self._clock.now()
        up_to_date = await self._catch_up.until(job, now)
        if up_to_date is None:
            return None
        return await write_change(
            self._store,
            self._clock,
            up_to_date,
            replace(next_revision(up_to_date, now), status=JobStatus.PAUSED, plan_at=None),
            retract_after=now,
            rewind=True,
            stop=Reason.PAUSED,
            event=EventKind.JOB_PAUSED,
        )

    async def _pause_one_shot(self, run: Run) -> Job | None:
        paused = _paused(run, self._clock.now())
        [refusal] = await self._store.apply([change_one_shot(run, paused, event=EventKind.JOB_PAUSED)])
        return job_of(paused) if refusal is None else None

    async def pause_many(self, jobs: Sequence[Job]) -> int:
        """Pause jobs, and return how many of them are paused now."""

        async def pause(job_id: JobId) -> Job:
            return await self.pause(job_id, owner=None)

        def propose(job: Job) -> Change | None:
            refuse_ended(job)
            if job.run is None or job.status is JobStatus.PAUSED:
                return None
            return change_one_shot(job.run, _paused(job.run, self._clock.now()), event=EventKind.JOB_PAUSED)

        one_shots = await change_one_shots(self._store, self._metrics, jobs, propose)
        return one_shots + await count_changed(jobs, pause)

    async def resume(self, job_id: JobId, *, missed: Misfire, owner: str | None, permit: Permit = permit_all) -> Job:
        """Resume the job; `missed` decides about the slots that came due in the pause."""

        async def change(job: Job) -> Job | None:
            permit(job.spec)
            refuse_ended(job)
            if job.status is not JobStatus.PAUSED:
                return job
            if job.run is None:
                return await self._resume_recurring(job, missed)
            return await self._resume_one_shot(job.run, missed)

        return await update(self._store, job_id, owner, change)

    async def _resume_recurring(self, job: Job, missed: Misfire) -> Job | None:
        firing = resume(job, missed, now=self._clock.now(), new_id=self._new_id)
        fired = await self._catch_up.write(firing)
        return None if fired is None else await self._catch_up.fire_ahead(fired)

    async def _resume_one_shot(self, run: Run, missed: Misfire) -> Job | None:
        resumed = _resumed(run, missed, self._clock.now())
        if isinstance(resumed, Settled):
            if not (await self._store.settle([resumed]))[0]:
                return None
            self._metrics.ended([resumed.run])
            return job_of(resumed.run)
        [refusal] = await self._store.apply([change_one_shot(run, resumed, event=EventKind.JOB_RESUMED)])
        return job_of(resumed) if refusal is None else None

    async def resume_many(self, jobs: Sequence[Job], *, missed: Misfire, permit: Permit = permit_all) -> int:
        """Resume jobs, and return how many of them are not paused any more."""

        async def resume_one(job_id: JobId) -> Job:
            return await self.resume(job_id, missed=missed, owner=None, permit=permit)

        def propose(job: Job) -> Change | Settled | None:
            permit(job.spec)
            refuse_ended(job)
            if job.run is None or job.status is not JobStatus.PAUSED:
                return None
            resumed = _resumed(job.run, missed, self._clock.now())
            if isinstance(resumed, Settled):
                return resumed
            return change_one_shot(job.run, resumed, event=EventKind.JOB_RESUMED)

        one_shots = await change_one_shots(self._store, self._metrics, jobs, propose)
        return one_shots + await count_changed(jobs, resume_one)


def _paused(run: Run, now: datetime) -> Run:
    """Return a one-shot as it is paused; raises Conflict when it has begun or is due."""
    refuse_started(run)
    if run.due_at <= now:
        raise Conflict(f"job_{run.job_id} is already due, and what is due still runs; cancel it instead")
    return replace(run, paused=True, revision=run.revision + 1)


def _resumed(run: Run, missed: Misfire, now: datetime) -> Run | Settled:
    """Return a paused one-shot as it is resumed, or its end if it came due in the pause and is skipped."""
    if run.due_at <= now and missed is Misfire.SKIP:
        return skip(run, Reason.PAUSED, now)
    return replace(run, paused=False, wake_at=max(run.due_at, now), revision=run.revision + 1)
