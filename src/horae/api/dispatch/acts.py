"""The acts of a principal that make runs, or are on many: permitted by its token, and within the quota of its owner."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from starlette.requests import Request

from horae.api.auth.guard import Principal, principal
from horae.api.auth.permission import Permission
from horae.api.dispatch.context import Services, services_of
from horae.api.http.owner_turns import OwnerTurns
from horae.api.quotas.quota import Quota
from horae.api.schemas.bulk_requests import BulkBody, JobAction, JobBulk, RunBulk, selected_jobs, selected_runs
from horae.core.decisions.quotas import NOTHING, Amount
from horae.core.drafts import Draft
from horae.core.errors import HoraeError, Invalid
from horae.core.model import Job, JobId, Misfire, Run, RunId
from horae.core.records import IdempotencyRecord
from horae.jobs.backfill import Filling
from horae.jobs.bulk.acts import BulkAct, BulkTally, perform_bulk
from horae.jobs.bulk.pages import Item
from horae.jobs.dead_letters import Patch, Selection, Tally
from horae.jobs.idempotency import Ask, Issue
from horae.jobs.update import Put, Revise
from horae.lookup import find_jobs, find_runs
from horae.ports.permits import permit_all


class Acts:
    """What one principal does with jobs; the only way of the routes to whatever makes runs or acts on many."""

    __slots__ = ("_bulk", "_jobs", "_letters", "_permit", "_queries", "_quota", "_services", "_who")

    def __init__(self, services: Services, who: Principal, bulk: OwnerTurns) -> None:
        """Create the acts; those on many wait for their turn in `bulk`."""
        self._services = services
        self._bulk = bulk
        self._jobs = services.jobs
        self._letters = services.dead_letters
        self._queries = services.queries
        self._permit = Permission(who, services.tasks.defaults)
        self._quota = Quota(services.usage, who, services.tasks.defaults)
        self._who = who

    async def job(self, job_id: JobId) -> Job:
        """Return a job that the principal may run; raises NotFound or Forbidden before a body is read."""
        job = await self._jobs.find(job_id, owner=self._who.reach)
        self._permit(job.spec)
        return job

    async def run(self, run_id: RunId) -> Run:
        """Return a run that the principal may run again; raises NotFound or Forbidden before a body is read."""
        run, _ = await self._queries.run(run_id, owner=self._who.reach)
        self._permit(run.spec)
        return run

    async def create(self, draft: Draft, issue: Issue[Job] | None = None) -> Job | IdempotencyRecord:
        """Create a job; raises OverQuota, as all acts that add something."""
        who, permit = self._who, self._permit
        async with self._quota.room(self._quota.of([draft])) as room:
            if issue is None:
                return await self._jobs.create(draft, owner=who.owner, by=who.subject, permit=permit)
            done = await self._jobs.create_once(draft, owner=who.owner, by=who.subject, issue=issue, permit=permit)
            if isinstance(done, IdempotencyRecord):
                room.added = NOTHING
            return done

    async def create_many(
        self, drafts: Sequence[Draft | HoraeError], asks: Sequence[Ask | None]
    ) -> list[JobId | HoraeError]:
        """Create many jobs, and return the id or the error of each; nothing if together they are over the quota."""
        who, permit = self._who, self._permit
        given = [draft for draft in drafts if isinstance(draft, Draft)]
        async with self._quota.room(self._quota.of(given)) as room:
            ids = await self._jobs.create_many(drafts, owner=who.owner, by=who.subject, asks=asks, permit=permit)
            if sum(1 for one in ids if not isinstance(one, HoraeError)) < len(given):
                pairs = zip(drafts, ids, strict=True)
                room.added = self._quota.of(
                    draft for draft, one in pairs if isinstance(draft, Draft) and not isinstance(one, HoraeError)
                )
            return ids

    async def patch(self, job_id: JobId, revise: Revise, *, expected: int | None) -> Job:
        """Write what `revise` makes of a job."""
        async with contextlib.AsyncExitStack() as rooms:

            async def permitted(job: Job) -> Draft:
                draft = await revise(job)
                self._permit.change(job.spec, draft)
                await rooms.enter_async_context(self._quota.room(self._quota.of_change(job, draft)))
                return draft

            return await self._jobs.patch(job_id, permitted, owner=self._who.reach, expected=expected)

    async def put(self, draft: Draft, there: Job | None, *, check: Callable[[Job | None], None]) -> Put:
        """Create the job with the key of the draft, or replace the one that is there."""
        who, quota = self._who, self._quota
        wanted = quota.of([draft]) if there is None else quota.of_change(there, draft)
        async with quota.room(wanted):
            return await self._jobs.put(draft, owner=who.owner, by=who.subject, check=check, permit=self._permit)

    async def run_now(self, job_id: JobId, params: str | None, issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        """Run a job now."""
        who, permit = self._who, self._permit
        async with self._quota.room(Amount(waiting=1, stored_bytes=len(params or ""))) as room:
            done = await self._jobs.run_now(job_id, params, owner=who.reach, by=who.subject, issue=issue, permit=permit)
            if isinstance(done, IdempotencyRecord):
                room.added = NOTHING
            return done

    async def backfill(
        self, job_id: JobId, start: datetime, end: datetime, issue: Issue[Filling] | None
    ) -> Filling | IdempotencyRecord:
        """Run past slots of a job; planners make the runs, a few at a time."""
        who = self._who
        async with self._quota.room(Amount(waiting=1)):
            return await self._jobs.backfill(job_id, start, end, owner=who.reach, issue=issue, permit=self._permit)

    async def resume(self, job_id: JobId, missed: Misfire) -> Job:
        """Resume a job."""
        return await self._jobs.resume(job_id, missed=missed, owner=self._who.reach, permit=self._permit)

    async def retry(self, run_id: RunId, patch: Patch | None, issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        """Run one dead letter again."""
        who, permit = self._who, self._permit
        async with self._quota.room(Amount(waiting=1)) as room:
            done = await self._letters.retry(run_id, patch, owner=who.reach, by=who.subject, issue=issue, permit=permit)
            if isinstance(done, IdempotencyRecord):
                room.added = NOTHING
            return done

    # --- many at once

    async def requeue(self, selection: Selection, patch: Patch | None) -> Tally:
        """Run dead letters again."""
        wanted = Amount(waiting=len(selection.ids or (1,)))
        async with self._bulk.turn(self._who.owner), self._quota.room(wanted) as room:
            tally = await self._letters.requeue(selection, patch, by=self._who.subject, permit=self._permit)
            room.added = Amount(waiting=tally.done)
            return tally

    async def discard(self, selection: Selection) -> Tally:
        """Resolve dead letters without running them again."""
        async with self._bulk.turn(self._who.owner):
            return await self._letters.discard(selection)

    async def on_jobs(self, asked: JobBulk, ask: Ask | None) -> BulkTally:
        """Pause, resume, cancel or run many jobs."""
        if asked.missed is not None and asked.action != "resume":
            raise Invalid(f"missed belongs to the action resume; leave it out for {asked.action}", pointer="/missed")
        jobs, permit = self._jobs, self._permit
        performs: dict[JobAction, Callable[[Sequence[Job]], Awaitable[int]]] = {
            "pause": jobs.pause_many,
            "resume": partial(jobs.resume_many, missed=asked.missed or Misfire.SKIP, permit=permit),
            "cancel": jobs.cancel_many,
            "run": partial(jobs.run_many, by=self._who.subject, ask=ask),
        }
        store, now = self._services.store, self._services.clock.now()

        async def find(ids: Sequence[str]) -> Sequence[Job]:
            return await find_jobs(store, [JobId(job_id) for job_id in ids], owner=self._who.reach)

        act = BulkAct(
            read=selected_jobs(asked, self._who, store, find, now=now),
            find=find,
            perform=performs[asked.action],
            permit=permit if asked.action in ("resume", "run") else permit_all,
        )
        return await self._perform(act, asked, adds=asked.action == "run")

    async def on_runs(self, asked: RunBulk) -> BulkTally:
        """Cancel many runs, or run many dead letters again."""
        store, now, retries = self._services.store, self._services.clock.now(), asked.action == "retry"
        letters, reach = self._letters, self._who.reach

        async def find(ids: Sequence[str]) -> Sequence[Run]:
            run_ids = [RunId(run_id) for run_id in ids]
            return await (letters.find(run_ids, owner=reach) if retries else find_runs(store, run_ids, owner=reach))

        act = BulkAct(
            read=selected_runs(asked, self._who, store, find, now=now),
            find=find,
            perform=partial(letters.requeue_many, by=self._who.subject) if retries else self._jobs.cancel_runs,
            permit=self._permit if retries else permit_all,
        )
        return await self._perform(act, asked, adds=retries)

    async def _perform(self, act: BulkAct[Item], asked: BulkBody, *, adds: bool) -> BulkTally:
        """Act on many; `adds` when that makes runs, which wait."""
        if adds:
            act = replace(act, perform=partial(self._within_quota, act.perform))
        async with self._bulk.turn(self._who.owner):
            return await perform_bulk(act, cursor=asked.cursor, dry_run=asked.dry_run)

    async def _within_quota(self, perform: Callable[[Sequence[Item]], Awaitable[int]], items: Sequence[Item]) -> int:
        """Act on a chunk of many, each of which adds a run that waits."""
        async with self._quota.room(Amount(waiting=len(items))) as room:
            done = await perform(items)
            room.added = Amount(waiting=done)
            return done


def acts_of(request: Request) -> Acts:
    """Return what the sender of an authorized request may do."""
    return Acts(services_of(request), principal(request), request.app.admission.bulk)
