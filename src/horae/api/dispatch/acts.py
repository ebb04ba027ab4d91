"""The acts of a principal that make runs: each is permitted by the scopes that its task needs."""

from collections.abc import Callable, Sequence
from datetime import datetime

from starlette.requests import Request

from horae.api.auth.guard import Principal, principal
from horae.api.dispatch.context import Services, services_of
from horae.core.drafts import Draft
from horae.core.errors import HoraeError
from horae.core.model import Job, JobId, Misfire, Run, RunId
from horae.core.records import IdempotencyRecord
from horae.jobs.backfill import Filling
from horae.jobs.dead_letters import Patch, Selection, Tally
from horae.jobs.idempotency import Ask, Issue
from horae.jobs.update import Put, Revise


class Acts:
    """What one principal does with jobs; the only way of the routes to whatever makes runs."""

    __slots__ = ("_jobs", "_letters", "_queries", "_who")

    def __init__(self, services: Services, who: Principal) -> None:
        self._jobs = services.jobs
        self._letters = services.dead_letters
        self._queries = services.queries
        self._who = who

    async def job(self, job_id: JobId) -> Job:
        """Return a job that the principal may run; raises NotFound or Forbidden before a body is read."""
        job = await self._jobs.find(job_id, owner=self._who.reach)
        self._who.permit(job.spec)
        return job

    async def run(self, run_id: RunId) -> Run:
        """Return a run that the principal may run again; raises NotFound or Forbidden before a body is read."""
        run, _ = await self._queries.run(run_id, owner=self._who.reach)
        self._who.permit(run.spec)
        return run

    async def create(self, draft: Draft, issue: Issue[Job] | None = None) -> Job | IdempotencyRecord:
        """Create a job."""
        who = self._who
        if issue is None:
            return await self._jobs.create(draft, owner=who.owner, by=who.subject, permit=who.permit)
        return await self._jobs.create_once(draft, owner=who.owner, by=who.subject, issue=issue, permit=who.permit)

    async def create_many(
        self, drafts: Sequence[Draft | HoraeError], asks: Sequence[Ask | None]
    ) -> list[JobId | HoraeError]:
        """Create many jobs, and return the id or the error of each."""
        who = self._who
        return await self._jobs.create_many(drafts, owner=who.owner, by=who.subject, asks=asks, permit=who.permit)

    async def patch(self, job_id: JobId, revise: Revise, *, expected: int | None) -> Job:
        """Write what `revise` makes of a job."""
        who = self._who
        return await self._jobs.patch(job_id, revise, owner=who.reach, expected=expected, permit=who.permit)

    async def put(self, draft: Draft, *, check: Callable[[Job | None], None]) -> Put:
        """Create or replace the job with the key of the draft."""
        who = self._who
        return await self._jobs.put(draft, owner=who.owner, by=who.subject, check=check, permit=who.permit)

    async def run_now(self, job_id: JobId, params: str | None, issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        """Run a job now."""
        who = self._who
        return await self._jobs.run_now(job_id, params, owner=who.reach, by=who.subject, issue=issue, permit=who.permit)

    async def backfill(
        self, job_id: JobId, start: datetime, end: datetime, issue: Issue[Filling] | None
    ) -> Filling | IdempotencyRecord:
        """Run past slots of a job."""
        who = self._who
        return await self._jobs.backfill(job_id, start, end, owner=who.reach, issue=issue, permit=who.permit)

    async def resume(self, job_id: JobId, missed: Misfire) -> Job:
        """Resume a job."""
        return await self._jobs.resume(job_id, missed=missed, owner=self._who.reach, permit=self._who.permit)

    async def requeue(self, selection: Selection, patch: Patch | None) -> Tally:
        """Run dead letters again."""
        return await self._letters.requeue(selection, patch, by=self._who.subject, permit=self._who.permit)

    async def retry(self, run_id: RunId, patch: Patch | None, issue: Issue[Run] | None) -> Run | IdempotencyRecord:
        """Run one dead letter again."""
        who = self._who
        return await self._letters.retry(run_id, patch, owner=who.reach, by=who.subject, issue=issue, permit=who.permit)


def acts_of(request: Request) -> Acts:
    """Return what the sender of an authorized request may do."""
    return Acts(services_of(request), principal(request))
