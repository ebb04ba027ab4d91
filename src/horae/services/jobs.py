"""What users do with jobs: create, change, pause, resume, cancel, run now."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.clock import Clock
from horae.core.changes import close_pause, give_up, resume, status_of
from horae.core.errors import Conflict, HoraeError, Invalid, KeyTaken, NotFound, RevisionChanged, Unavailable
from horae.core.lifecycle import WAITING
from horae.core.model import Job, JobId, JobStatus, Misfire, Reason, Run, RunId, Spec, State
from horae.core.plan import MAX_UNSTARTED, Due, Firing, NewId, fire, gate_of, manual_run, one_shot_due, skip
from horae.core.schedule import Schedule, is_recurring, next_after, parse_schedule, refuse_never_firing
from horae.metrics import Metrics
from horae.services.drafts import Draft
from horae.services.grouping import Group
from horae.services.parameters import Parameters
from horae.services.stopping import Stopper
from horae.services.taskbook import TaskBook
from horae.store import JobChange, RunFilter, Store

BATCH = 500  # jobs of one request that are written in one go
SLICE = 100  # jobs that are prepared before other requests get their turn
TRIES = 10  # how often an act is begun anew because somebody else moved the job meanwhile

Revise = Callable[[Job | Run], Awaitable[Draft]]
Item = Run | Firing


class Jobs:
    """The use cases that the API, the command line and the SDK share. `owner` None reaches every owner's jobs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tasks: TaskBook,
        parameters: Parameters,
        metrics: Metrics,
        new_id: NewId,
        horizon: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._parameters = parameters
        self._new_id = new_id
        self._horizon = horizon
        self._metrics = metrics
        self._stopper = Stopper(store, clock, metrics)
        self._creates: Group[Item, JobId] = Group(store.create)

    # --- creating

    async def create(self, draft: Draft, *, owner: str, by: str) -> Job | Run:
        """Make one job durable, together with others that are being created; its first runs are planned with it."""
        item = await self._prepare(draft, owner, by)
        holder = await self._creates.add(item)
        return _created(item, holder)

    async def create_many(
        self, drafts: Sequence[Draft | HoraeError], *, owner: str, by: str
    ) -> list[Job | Run | HoraeError]:
        """Create each draft or tell why not; drafts that are errors already are passed on."""
        outcomes: list[Job | Run | HoraeError] = []
        for start in range(0, len(drafts), BATCH):
            outcomes += await self._create_batch(drafts[start : start + BATCH], owner, by)
        down = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
        if outcomes and len(down) == len(outcomes):
            raise down[0]  # nothing at all was written, so the whole request can be repeated
        return outcomes

    async def _create_batch(
        self, drafts: Sequence[Draft | HoraeError], owner: str, by: str
    ) -> list[Job | Run | HoraeError]:
        prepared = [await self._try_prepare(place, draft, owner, by) for place, draft in enumerate(drafts)]
        items = [item for item in prepared if not isinstance(item, HoraeError)]
        try:
            holders = iter(await self._store.create(items) if items else [])
        except Unavailable as exc:
            return [item if isinstance(item, HoraeError) else exc for item in prepared]
        return [item if isinstance(item, HoraeError) else _outcome(item, next(holders)) for item in prepared]

    async def _try_prepare(self, place: int, draft: Draft | HoraeError, owner: str, by: str) -> Item | HoraeError:
        if place % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        if isinstance(draft, HoraeError):
            return draft
        try:
            return await self._prepare(draft, owner, by)
        except HoraeError as exc:
            return exc

    async def _prepare(self, draft: Draft, owner: str, by: str) -> Item:
        """The rows of a new job: one run, or a job with the runs of its first horizon."""
        now = self._clock.now()
        schedule = await self._check(draft, now)
        job_id = JobId(self._new_id())
        spec = await self._spec(draft, job_id)
        if is_recurring(schedule):
            return self._recurring(job_id, owner, by, spec, schedule, now)
        due_at = one_shot_due(schedule, now)
        return Run(
            id=RunId(job_id),
            job_id=job_id,
            owner=owner,
            created_by=by,
            spec=spec,
            schedule=schedule,
            due_at=due_at,
            wake_at=max(due_at, now),
            gate=gate_of(spec, job_id, owner, recurring=False),
            created_at=now,
        )

    def _recurring(self, job_id: JobId, owner: str, by: str, spec: Spec, schedule: Schedule, now: datetime) -> Firing:
        job = Job(
            id=job_id,
            owner=owner,
            created_by=by,
            spec=spec,
            schedule=schedule,
            next_fire_at=next_after(schedule, now),
            plan_at=now,
            created_at=now,
            updated_at=now,
        )
        return fire(Due(job=job), now=now, horizon=self._horizon, new_id=self._new_id)

    async def _check(self, draft: Draft, now: datetime, before: Job | Run | None = None) -> Schedule:
        """The schedule of a draft, after everything in it that is new was found to be right."""
        schedule = parse_schedule(draft.schedule, now=now)
        if before is None or schedule != before.schedule:
            refuse_never_firing(schedule, now)
        if not draft.allow_unknown_task and (before is None or draft.task != before.spec.task):
            await self._tasks.require(draft.task)
        self._tasks.check(draft.task, draft.params)
        return schedule

    async def _spec(self, draft: Draft, name: str) -> Spec:
        params, blob = await self._parameters.keep(draft.params, name)
        return draft.spec(self._tasks.defaults(draft.task), params=params, params_blob=blob)

    # --- finding

    async def find(self, job_id: JobId, *, owner: str | None) -> Job | Run:
        """The job; raises NotFound also for another owner's."""
        job = await self._store.job(job_id, owner=owner)
        if job is None:
            raise NotFound("job", f"job_{job_id}")
        return job

    # --- changing

    async def patch(
        self, job_id: JobId, revise: Revise, *, owner: str | None, expected: int | None = None
    ) -> Job | Run:
        """Write what `revise` makes of the job, if its revision is `expected`; None takes any revision."""

        async def change(job: Job | Run) -> Job | Run | None:
            if expected is not None and job.revision != expected:
                raise RevisionChanged(f"job_{job_id}")
            _refuse_over(job)
            draft = await revise(job)
            if isinstance(job, Job):
                return await self._patch_recurring(job, draft)
            return await self._patch_one_shot(job, draft)

        return await self._act(job_id, owner, change)

    async def _patch_recurring(self, job: Job, draft: Draft) -> Job | None:
        now = self._clock.now()
        schedule = await self._check(draft, now, job)
        if not is_recurring(schedule):
            raise Invalid("a recurring job cannot become one that runs once; create another job", pointer="/schedule")
        spec = await self._revised_spec(job, draft)
        moved = schedule != job.schedule
        if moved or job.status is JobStatus.SCHEDULED:
            up_to_date = await self._account_for_past(job, now, for_good=moved)
            if up_to_date is None:
                return None
            job = up_to_date
        active = job.status is JobStatus.SCHEDULED
        changed = await self._store.change(
            JobChange(
                job=replace(
                    _next_revision(job, now),
                    spec=spec,
                    schedule=schedule,
                    next_fire_at=next_after(schedule, now) if moved else job.next_fire_at,
                    plan_at=now if active else None,
                ),
                expected=job.revision,
                retract_after=now,
                rewind=not moved,
                stop=Reason.CANCELLED if moved else None,
            )
        )
        if changed is None:
            return None
        return await self._fire_ahead(changed.job) if active else changed.job

    async def _patch_one_shot(self, run: Run, draft: Draft) -> Run | None:
        now = self._clock.now()
        schedule = await self._check(draft, now, run)
        if is_recurring(schedule):
            raise Invalid("a job that runs once cannot become a recurring one; create another job", pointer="/schedule")
        _refuse_begun(run)
        spec = await self._revised_spec(run, draft)
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
        return changed if await self._store.change_one_shot(changed, expected=run.revision) else None

    async def _revised_spec(self, job: Job | Run, draft: Draft) -> Spec:
        """The spec of the next revision; parameters that did not change stay where they are."""
        if draft.key != job.spec.key:
            raise Invalid("the key of a job cannot be changed; create another job with that key", pointer="/key")
        if draft.params == await self._parameters.of(job.spec):
            defaults = self._tasks.defaults(draft.task)
            return draft.spec(defaults, params=job.spec.params, params_blob=job.spec.params_blob)
        return await self._spec(draft, f"{job.id}/{self._new_id()}")

    # --- pausing and resuming

    async def pause(self, job_id: JobId, *, owner: str | None) -> Job | Run:
        """Let no further slot run until the job is resumed; a run that is already due still runs."""

        async def change(job: Job | Run) -> Job | Run | None:
            _refuse_over(job)
            if status_of(job) is JobStatus.PAUSED:
                return job
            return await (self._pause_recurring(job) if isinstance(job, Job) else self._pause_one_shot(job))

        return await self._act(job_id, owner, change)

    async def _pause_recurring(self, job: Job) -> Job | None:
        now = self._clock.now()
        up_to_date = await self._account_for_past(job, now)
        if up_to_date is None:
            return None
        changed = await self._store.change(
            JobChange(
                job=replace(_next_revision(up_to_date, now), status=JobStatus.PAUSED, plan_at=None),
                expected=job.revision,
                retract_after=now,
                rewind=True,
                stop=Reason.PAUSED,
            )
        )
        return None if changed is None else changed.job

    async def _pause_one_shot(self, run: Run) -> Run | None:
        _refuse_begun(run)
        if run.due_at <= self._clock.now():
            raise Conflict(f"job_{run.job_id} is already due, and what is due still runs; cancel it instead")
        paused = replace(run, paused=True, revision=run.revision + 1)
        return paused if await self._store.change_one_shot(paused, expected=run.revision) else None

    async def resume(self, job_id: JobId, *, missed: Misfire, owner: str | None) -> Job | Run:
        """End a pause; `missed` says what becomes of the slots that came due in it."""

        async def change(job: Job | Run) -> Job | Run | None:
            _refuse_over(job)
            if status_of(job) is not JobStatus.PAUSED:
                return job
            if isinstance(job, Job):
                return await self._resume_recurring(job, missed)
            return await self._resume_one_shot(job, missed)

        return await self._act(job_id, owner, change)

    async def _resume_recurring(self, job: Job, missed: Misfire) -> Job | None:
        firing = resume(job, missed, now=self._clock.now(), new_id=self._new_id)
        fired = await self._fire(firing)
        return None if fired is None else await self._fire_ahead(fired)

    async def _resume_one_shot(self, run: Run, missed: Misfire) -> Run | None:
        now = self._clock.now()
        if run.due_at <= now and missed is Misfire.SKIP:
            ended = skip(run, Reason.PAUSED, now)
            if not (await self._store.end_waiting([ended]))[0]:
                return None
            self._metrics.ended(State.SKIPPED)
            return ended.run
        resumed = replace(run, paused=False, wake_at=max(run.due_at, now), revision=run.revision + 1)
        return resumed if await self._store.change_one_shot(resumed, expected=run.revision) else None

    # --- cancelling

    async def cancel(self, job_id: JobId, *, keep_running: bool, owner: str | None) -> Job | Run:
        """End the job and its waiting runs, and unless they are kept its running ones."""

        async def change(job: Job | Run) -> Job | Run | None:
            if status_of(job) is JobStatus.CANCELLED:
                await self._stopper.stop_job(job_id, keep_running=keep_running)  # what an earlier cancel left undone
            _refuse_over(job)
            return await self._cancel_recurring(job) if isinstance(job, Job) else job

        job = await self._act(job_id, owner, change)
        await self._stopper.stop_job(job_id, keep_running=keep_running)
        return job if isinstance(job, Job) else await self.find(job_id, owner=owner)

    async def _cancel_recurring(self, job: Job) -> Job | None:
        now = self._clock.now()
        up_to_date = await self._account_for_past(job, now, for_good=True)
        if up_to_date is None:
            return None
        changed = await self._store.change(
            JobChange(
                job=replace(
                    _next_revision(up_to_date, now), status=JobStatus.CANCELLED, next_fire_at=None, plan_at=None
                ),
                expected=job.revision,
                retract_after=now,
                stop=Reason.CANCELLED,
            )
        )
        return None if changed is None else changed.job

    async def cancel_run(self, run_id: RunId, *, owner: str | None) -> Run:
        """End one run; one that a worker holds is `cancelling` until the worker confirms."""
        return await self._stopper.cancel(run_id, owner=owner)

    # --- running now

    async def run_now(self, job_id: JobId, params: str | None, *, owner: str | None, by: str) -> Run:
        """Run the job once more at once, whatever its schedule says, also while it is paused or finished."""
        job = await self.find(job_id, owner=owner)
        if status_of(job) is JobStatus.CANCELLED:
            _refuse_over(job)
        run = replace(manual_run(job, None, now=self._clock.now(), new_id=self._new_id), created_by=by)
        if params is not None:
            self._tasks.check(run.spec.task, params)
            kept, blob = await self._parameters.keep(params, run.id)
            run = replace(run, spec=replace(run.spec, params=kept, params_blob=blob))
        await self._creates.add(run)
        return run

    # --- steps that several acts share

    async def _act(
        self, job_id: JobId, owner: str | None, change: Callable[[Job | Run], Awaitable[Job | Run | None]]
    ) -> Job | Run:
        """Read and change until nobody comes between."""
        for _ in range(TRIES):
            changed = await change(await self.find(job_id, owner=owner))
            if changed is not None:
                return changed
        raise Conflict(f"job_{job_id} is being changed by others all the time; try again")

    async def _account_for_past(self, job: Job, now: datetime, *, for_good: bool = False) -> Job | None:
        """The job after its slots up to now were accounted for by the schedule they belong to; None on a lost race.

        `for_good` when that schedule ends now: then what it is still catching up with is given up.
        """
        while job.next_fire_at is not None and job.next_fire_at <= now:
            if job.status is JobStatus.PAUSED:
                firing = close_pause(job, now=now, new_id=self._new_id)
            else:
                firing = fire(Due(job=job), now=now, horizon=timedelta(), new_id=self._new_id)
            fired = await self._fire(firing)
            if fired is None:
                return None
            job = fired
        return await self._give_up_catching_up(job) if for_good else job

    async def _give_up_catching_up(self, job: Job) -> Job | None:
        """The job after what it had not caught up with was given up, before its schedule goes; None on a lost race."""
        ledger = await self._store.ledger(job.id, start=job.created_at, end=self._clock.now(), limit=1)
        endings = [give_up(job, backfill) for backfill in ledger.backfills]
        if not endings:
            return job
        ended = await self._store.fill([page for page, _ in endings])
        skips = tuple(skipped for (_, skipped), done in zip(endings, ended, strict=True) if done)
        fired = await self._fire(
            Firing(job=job, skips=skips, next_fire_at=job.next_fire_at, plan_at=job.plan_at, status=job.status)
        )
        return fired if all(ended) else None  # else a planner turned some of it into runs meanwhile

    async def _fire_ahead(self, job: Job) -> Job:
        """Plan the first horizon at once; when a planner was faster that is just as well."""
        which = RunFilter(job_id=job.id, states=frozenset({State.SCHEDULED, State.CLAIMED}))
        waiting = await self._store.list_runs(which, cursor=None, limit=MAX_UNSTARTED)
        unstarted = len(waiting.items)
        due = Due(job=job, unstarted=unstarted, live=unstarted)
        firing = fire(due, now=self._clock.now(), horizon=self._horizon, new_id=self._new_id)
        return await self._fire(firing) or job

    async def _fire(self, firing: Firing) -> Job | None:
        [applied] = await self._store.fire([firing])
        if not applied:
            return None
        return replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)


def _created(item: Item, holder: JobId) -> Job | Run:
    """The job that was written; raises KeyTaken when another one holds its key."""
    job = _job_of(item)
    job_id = job.id if isinstance(job, Job) else job.job_id
    if holder != job_id:
        raise KeyTaken(job.spec.key or "", f"job_{holder}")
    return job


def _outcome(item: Item, holder: JobId) -> Job | Run | HoraeError:
    try:
        return _created(item, holder)
    except KeyTaken as exc:
        return exc


def _job_of(item: Item) -> Job | Run:
    if isinstance(item, Run):
        return item
    return replace(item.job, next_fire_at=item.next_fire_at, plan_at=item.plan_at, status=item.status)


def _next_revision(job: Job, now: datetime) -> Job:
    return replace(job, revision=job.revision + 1, updated_at=now)


def _refuse_over(job: Job | Run) -> None:
    status = status_of(job)
    if status in (JobStatus.CANCELLED, JobStatus.FINISHED):
        shown = job.id if isinstance(job, Job) else job.job_id
        raise Conflict(f"job_{shown} is {status}; it can be read, but not changed any more")


def _refuse_begun(run: Run) -> None:
    if run.state not in WAITING or run.attempt > 0:
        raise Conflict(f"job_{run.job_id} runs once and has already begun; it can be cancelled, but not changed")
