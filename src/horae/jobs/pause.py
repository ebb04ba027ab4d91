"""Pauses and resumes jobs."""

from horae.core.decisions.results import skip
from horae.core.effects import change_one_shot
from horae.core.errors import Conflict
from horae.core.events import EventKind
from horae.core.ids import NewId
from horae.core.job_rules import job_of, resume
from horae.core.model import Job, JobId, JobStatus, Misfire, Reason, Run
from horae.core.values import replace
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
        refuse_started(run)
        if run.due_at <= self._clock.now():
            raise Conflict(f"job_{run.job_id} is already due, and what is due still runs; cancel it instead")
        paused = replace(run, paused=True, revision=run.revision + 1)
        [refusal] = await self._store.apply([change_one_shot(run, paused, event=EventKind.JOB_PAUSED)])
        return job_of(paused) if refusal is None else None

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
        now = self._clock.now()
        if run.due_at <= now and missed is Misfire.SKIP:
            ended = skip(run, Reason.PAUSED, now)
            if not (await self._store.settle([ended]))[0]:
                return None
            self._metrics.ended([ended.run])
            return job_of(ended.run)
        resumed = replace(run, paused=False, wake_at=max(run.due_at, now), revision=run.revision + 1)
        [refusal] = await self._store.apply([change_one_shot(run, resumed, event=EventKind.JOB_RESUMED)])
        return job_of(resumed) if refusal is None else None
