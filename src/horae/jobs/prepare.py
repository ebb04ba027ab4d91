"""Checks drafts, completes them with defaults, and turns them into the rows of jobs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from horae.core.decisions.firing import Due, Firing, fire
from horae.core.decisions.new_runs import one_shot_due
from horae.core.decisions.release import gate_of
from horae.core.drafts import Draft
from horae.core.errors import Invalid
from horae.core.ids import NewId
from horae.core.merge_patch import merge_patch
from horae.core.model import Job, JobId, OnFailure, Run, RunId, Spec
from horae.core.schedule.evaluate import is_recurring, next_after, refuse_never_firing
from horae.core.schedule.parse import parse_schedule
from horae.core.schedule.types import Every, Schedule
from horae.core.values import replace
from horae.jobs.params import Parameters
from horae.jobs.task_catalog import TaskCatalog
from horae.secrets.sealer import Opened, Sealer, keeps_some, merged
from horae.tasks.origins import origin_of

Item = Run | Firing


class Preparation:
    """Checks drafts against tasks and schedules, and builds the rows of jobs."""

    def __init__(
        self, tasks: TaskCatalog, parameters: Parameters, sealer: Sealer, *, new_id: NewId, horizon: timedelta
    ) -> None:
        self._tasks = tasks
        self._parameters = parameters
        self._sealer = sealer
        self._new_id = new_id
        self._horizon = horizon

    async def item(
        self, draft: Draft, job_id: JobId, *, owner: str, by: str, now: datetime, since: int | None = None
    ) -> Item:
        """Build a new job: one run, or a recurring job with its first runs; `since` as in `TaskCatalog.require`."""
        schedule = await self.check(draft, now, since=since)
        spec = await self._spec(draft, job_id)
        if is_recurring(schedule):
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

    async def check(
        self, draft: Draft, now: datetime, before: Job | None = None, *, since: int | None = None
    ) -> Schedule:
        """Return the schedule of a draft; raises Invalid for anything that is wrong and was not so `before`."""
        _refuse_block_without_key(draft, before)
        schedule = _schedule(draft, now, before)
        if before is None or schedule != before.schedule:
            refuse_never_firing(schedule, now)
        if not draft.allow_unknown_task and (before is None or draft.task != before.spec.task):
            await self._tasks.require(draft.task, since=since)
        secrets = _text(self._secrets(draft, before))
        self._tasks.check(draft.task, draft.params, secrets)
        if before is not None and before.spec.secrets is not None and secrets is not None:
            await self._refuse_other_host(draft, secrets, before.spec)
        return schedule

    async def _refuse_other_host(self, draft: Draft, secrets: str, before: Spec) -> None:
        """Raise Invalid when secrets that are kept would be sent to another host than the one they were given for."""
        to = origin_of(draft.task, merged(draft.params, secrets))
        if to is None or isinstance(draft.secrets, str):
            return
        known = self._sealer.open(before.secrets or "")
        if keeps_some(draft.secrets, known) and to != origin_of(
            before.task, merged(await self._parameters.of(before), known)
        ):
            detail = (
                f"the secrets of this job were not given for {to}; give all of them again, or remove them with null"
            )
            raise Invalid(detail, pointer="/secrets")

    @property
    def reads(self) -> int:
        """The `since` for all items of one request."""
        return self._tasks.reads

    async def with_params(self, run: Run, params: str) -> Run:
        """Return a new run with other parameters; raises Invalid when they do not fit its task and secrets."""
        spec = run.spec
        secrets = None if spec.secrets is None else self._sealer.open(spec.secrets)
        self._tasks.check(spec.task, params, secrets)
        if secrets is not None:
            to = origin_of(spec.task, merged(params, secrets))
            if to is not None and to != origin_of(spec.task, merged(await self._parameters.of(spec), secrets)):
                detail = f"the secrets of this run were not given for {to}; create a job for it, with its own secrets"
                raise Invalid(detail, pointer="/params/url")
        kept, blob = await self._parameters.keep(params, run.id)
        return replace(run, spec=replace(spec, params=kept, params_blob=blob))

    async def with_patched_params(self, run: Run, patch: Mapping[str, object]) -> Run:
        """Return a new run with a merge patch applied to its parameters; raises Invalid."""
        before = msgspec.json.decode(await self._parameters.of(run.spec))
        return await self.with_params(run, msgspec.json.encode(merge_patch(before, patch)).decode())

    def with_secrets_of(self, job: Job, draft: Draft) -> Draft:
        """Return the draft with the secrets that an update of the job by it would result in."""
        return replace(draft, secrets=_text(self._secrets(draft, job)))

    async def revised(self, job: Job, draft: Draft) -> Spec:
        """Return the spec of the next version of a job; unchanged parameters are not stored again."""
        if draft.key != job.spec.key:
            raise Invalid("the key of a job cannot be changed; create another job with that key", pointer="/key")
        if _same_json(draft.params, await self._parameters.of(job.spec)):
            return self._completed(draft, job.spec.params, job.spec.params_blob, job)
        return await self._spec(draft, f"{job.id}/{self._new_id()}", job)

    async def _spec(self, draft: Draft, name: str, before: Job | None = None) -> Spec:
        params, blob = await self._parameters.keep(draft.params, name)
        return self._completed(draft, params, blob, before)

    def _completed(self, draft: Draft, params: str, blob: str | None, before: Job | None) -> Spec:
        secrets = self._secrets(draft, before)
        return draft.spec(
            self._tasks.defaults(draft.task),
            params=params,
            params_blob=blob,
            secrets=None if secrets is None else secrets.sealed,
        )

    def _secrets(self, draft: Draft, before: Job | None) -> Opened | None:
        if draft.secrets is None:
            return None
        return self._sealer.revised(draft.secrets, None if before is None else before.spec.secrets)


def _refuse_block_without_key(draft: Draft, before: Job | None) -> None:
    """Raise Invalid for `on_failure: block` without an ordering key; jobs from before this check may keep it."""
    if draft.policy.on_failure is not OnFailure.BLOCK or draft.ordering_key is not None:
        return
    if before is None or before.spec.policy.on_failure is not OnFailure.BLOCK or before.spec.ordering_key is not None:
        detail = "on_failure: block stops later runs with the same ordering_key; give one, too, or leave on_failure out"
        raise Invalid(detail, pointer="/on_failure")


def _schedule(draft: Draft, now: datetime, before: Job | None) -> Schedule:
    """Parse the schedule of a draft; an interval without an anchor keeps that of the job before."""
    if before is not None and isinstance(before.schedule, Every):
        anchored = parse_schedule(draft.schedule, now=before.schedule.anchor)
        if anchored == before.schedule:
            return anchored
    if isinstance(draft.schedule, str):
        return _parsed(draft.schedule, now)
    return parse_schedule(draft.schedule, now=now)


@lru_cache(64)  # most jobs of a batch have the same schedule
def _parsed(text: str, now: datetime) -> Schedule:
    return parse_schedule(text, now=now)


def _text(secrets: Opened | None) -> str | None:
    return None if secrets is None else secrets.text


def _same_json(one: str, other: str) -> bool:
    """Whether two JSON texts have the same value, in any formatting and order of names."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(text: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
