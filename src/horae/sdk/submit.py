"""Creates the jobs of a submission: one, many, or many within the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from horae.core.drafts import Draft
from horae.core.errors import Invalid
from horae.core.model import Job, JobId
from horae.core.records import IdempotencyRecord
from horae.jobs.idempotency import Ask, answer_of, asked
from horae.sdk.options import SubmitOptions
from horae.sdk.transactions import Statement, enlistment

if TYPE_CHECKING:
    from horae.sdk.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class EnlistedJobs:
    """Jobs that exist once the transaction of the statement commits."""

    jobs: Sequence[JobId]
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCreator:
    """Creates jobs of one task, with the same owner and options; `by` is the owner of the application."""

    task: str
    owner: str
    by: str
    options: SubmitOptions

    async def create(self, params: str, connection: "Connection") -> JobId:
        """Create one job durably, in one write with others that are submitted at the same time."""
        draft = self._draft(params, connection)
        ask = self._ask([params])
        if ask is None:
            return (await connection.jobs.create(draft, owner=self.owner, by=self.by)).id

        async def issue(job: Job) -> IdempotencyRecord:
            return connection.jobs.idempotency.of(ask, job.id)

        created = await connection.jobs.create_once(draft, owner=self.owner, by=self.by, issue=issue)
        return JobId(answer_of(created, ask)) if isinstance(created, IdempotencyRecord) else created.id

    async def create_many(self, params: Sequence[str], connection: "Connection") -> list[JobId]:
        """Create many jobs durably."""
        draft = self._draft("{}", connection)
        return await connection.jobs.bulk.create(draft, params, owner=self.owner, by=self.by, ask=self._ask(params))

    async def enlist(self, params: Sequence[str], connection: "Connection") -> EnlistedJobs:
        """Prepare jobs for the caller's transaction; only large parameters are written now."""
        draft = self._draft("{}", connection)
        if self.options.job.idempotency_key is not None:
            raise Invalid("tx= and idempotency_key= cannot be combined; the transaction itself prevents duplicates")
        runs = await connection.jobs.bulk.prepare(draft, params, owner=self.owner, by=self.by)
        return EnlistedJobs(jobs=[run.job_id for run in runs], statement=await enlistment(connection, runs))

    def _draft(self, params: str, connection: "Connection") -> Draft:
        schedule = self.options.schedule(connection.clock.now())
        return self.options.job.draft(self.task, params, schedule, self.options.secrets)

    def _ask(self, params: Sequence[str]) -> Ask | None:
        options = self.options
        key = options.job.idempotency_key
        if key is None:
            return None
        given = {name: value for name, value in msgspec.structs.asdict(options.job).items() if value is not None}
        request = msgspec.json.encode((self.task, options.at, options.delay, given), order="deterministic")
        return asked(self.owner, key, request, *(text.encode() for text in params))
