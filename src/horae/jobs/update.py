"""Updates jobs: in part, as a whole, or by key, where the job is created if it does not exist."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from horae.core.decisions.new_runs import one_shot_due
from horae.core.decisions.release import gate_of
from horae.core.drafts import Draft
from horae.core.effects import change_one_shot
from horae.core.errors import Conflict, Invalid, RevisionChanged
from horae.core.events import EventKind
from horae.core.job_rules import job_of
from horae.core.model import Job, JobId, JobStatus, Reason, Run, Spec
from horae.core.schedule.evaluate import is_recurring, next_after
from horae.core.schedule.types import Schedule
from horae.core.values import replace
from horae.jobs.cancel import Canceller
from horae.jobs.catch_up import CatchUp
from horae.jobs.create import Creator
from horae.jobs.optimistic import (
    TRIES,
    always_changing,
    next_revision,
    refuse_ended,
    refuse_started,
    update,
    write_change,
)
from horae.jobs.prepare import Item, Preparation
from horae.lookup import find_job_by_key
from horae.ports.clock import Clock
from horae.ports.permits import Permit, permit_all
from horae.ports.store import Store

Revise = Callable[[Job], Awaitable[Draft]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """The job that has a key now, and whether it was created."""

    job: Job
    created: bool


class Updater:
    """Writes new versions of jobs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        preparation: Preparation,
        catch_up: CatchUp,
        creator: Creator,
        canceller: Canceller,
    ) -> None:
        self._store = store
        self._clock = clock
        self._preparation = preparation
        self._catch_up = catch_up
        self._creator = creator
        self._canceller = canceller

    async def patch(self, job_id: JobId, revise: Revise, *, owner: str | None, expected: int | None = None) -> Job:
        """Write what `revise` makes of the job, if that differs; raises RevisionChanged unless it is at `expected`."""

        async def change(job: Job) -> Job | None:
            if expected is not None and job.revision != expected:
                raise RevisionChanged(f"job_{job_id}")
            refuse_ended(job)
            return await self._change(job, await revise(job))

        return await update(self._store, job_id, owner, change)

    # --- by key

    async def put(
        self,
        draft: Draft,
        *,
        owner: str,
        by: str,
        check: Callable[[Job | None], None] = lambda there: None,
        permit: Permit = permit_all,
    ) -> Put:
        """Create the job with the key of the draft, or update it; `check` may refuse the existing job.

        A one-shot that becomes a recurring job, or the other way round, is cancelled and replaced by a new job.
        """
        assert draft.key is not None
        permit(draft)
        for _ in range(TRIES):
            there = await find_job_by_key(self._store, owner, draft.key)
            check(there)
            if there is None:
                done = await self._create(await self._creator.prepare(draft, owner, by))
            else:
                done = await self._replace(there, draft, by)
            if done is not None:
                return done
        raise always_changing(f"the job with the key {draft.key!r}")

    async def _create(self, item: Item) -> Put | None:
        """Create the job; None when another one got the key first."""
        job = await self._creator.write_if_free(item)
        return None if job is None else Put(job=job, created=True)

    async def _replace(self, job: Job, draft: Draft, by: str) -> Put | None:
        """Update the job, or replace it when it becomes one of another kind; None on a conflict."""
        schedule = await self._preparation.check(draft, self._clock.now(), job)
        if is_recurring(schedule) == job.recurring:
            changed = await self._change(job, draft)
            return None if changed is None else Put(job=changed, created=False)
        if job.run is not None:
            refuse_started(job.run)
        complete = self._preparation.with_secrets_of(job, draft)
        successor = await self._creator.prepare(complete, job.owner, by)  # first: if it is invalid the old job stays
        try:
            await self._canceller.cancel(job.id, keep_running=True, owner=job.owner)
        except Conflict:
            return None  # it ended meanwhile
        return await self._create(successor)

    # --- versions

    async def _change(self, job: Job, draft: Draft) -> Job | None:
        """Write the job as the draft defines it, unless it is so already; None on a conflict."""
        schedule = await self._preparation.check(draft, self._clock.now(), job)
        if is_recurring(schedule) != job.recurring:
            raise Invalid(_OTHER_KIND[job.recurring], pointer="/schedule")
        spec = await self._preparation.revised(job, draft)
        if spec == job.spec and schedule == job.schedule:
            return job
        if job.run is None:
            return await self._change_recurring(job, spec, schedule)
        return await self._change_one_shot(job.run, spec, schedule)

    async def _change_recurring(self, job: Job, spec: Spec, schedule: Schedule) -> Job | None:
        assert is_recurring(schedule)
        now = self._clock.now()
        moved = schedule != job.schedule
        if moved or job.status is JobStatus.SCHEDULED:
            up_to_date = await self._catch_up.until(job, now, schedule_ends=moved)
            if up_to_date is None:
                return None
            job = up_to_date
        active = job.status is JobStatus.SCHEDULED
        revised = replace(
            next_revision(job, now),
            spec=spec,
            schedule=schedule,
            next_fire_at=next_after(schedule, now) if moved else job.next_fire_at,
            plan_at=now if active else None,
        )
        changed = await write_change(
            self._store,
            self._clock,
            job,
            revised,
            retract_after=now,
            rewind=not moved,
            stop=Reason.CANCELLED if moved else None,
            event=EventKind.JOB_UPDATED,
        )
        return changed if changed is None or not active else await self._catch_up.fire_ahead(changed)

    async def _change_one_shot(self, run: Run, spec: Spec, schedule: Schedule) -> Job | None:
        now = self._clock.now()
        refuse_started(run)
        due_at = run.due_at if schedule == run.schedule else one_shot_due(schedule, now)
        changed = replace(
            run,
            spec=spec,
            schedule=schedule,
            due_at=due_at,
            wake_at=max(due_at, now),
            gate=gate_of(spec, run.job_id, run.owner, recurring=False),
            revision=run.revision + 1,
        )
        [refusal] = await self._store.apply([change_one_shot(run, changed, event=EventKind.JOB_UPDATED)])
        return job_of(changed) if refusal is None else None


_OTHER_KIND = {
    True: "a recurring job cannot become one that runs once; create another job",
    False: "a job that runs once cannot become a recurring one; create another job",
}
