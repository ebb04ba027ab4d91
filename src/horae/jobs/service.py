"""What users do with jobs, in one place: create, change, pause, resume, cancel, run now, fill."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from horae.core.drafts import Draft
from horae.core.errors import HoraeError
from horae.core.ids import Ids
from horae.core.model import Job, JobId, Misfire, Run, RunId
from horae.core.records import IdempotencyRecord
from horae.jobs.backfill import Backfilling, Filling
from horae.jobs.bulk_create import Alike
from horae.jobs.cancel import Cancelling
from horae.jobs.catch_up import Accounting
from horae.jobs.create import Creating
from horae.jobs.idempotency import Ask, Idempotency, Issue
from horae.jobs.lookup import find_job_by_key
from horae.jobs.optimistic import find
from horae.jobs.params import Parameters
from horae.jobs.pause import Pausing
from horae.jobs.prepare import Preparation
from horae.jobs.stop import Stopper
from horae.jobs.task_catalog import TaskBook
from horae.jobs.update import Changing, Put, Revise
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.secrets.sealer import Sealer


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
        new_id: Ids,
        horizon: timedelta,
        sealer: Sealer | None = None,
    ) -> None:
        """Without a `sealer` secrets are kept as they are."""
        self._store = store
        self.idempotency = Idempotency(store, clock)
        preparation = Preparation(tasks, parameters, sealer or Sealer(), new_id=new_id, horizon=horizon)
        accounting = Accounting(store, clock, new_id=new_id, horizon=horizon)
        self._stopper = Stopper(store, clock, metrics)
        self._creating = Creating(
            store=store,
            clock=clock,
            preparation=preparation,
            parameters=parameters,
            idempotency=self.idempotency,
            ids=new_id,
        )
        self.alike = Alike(
            store=store, creating=self._creating, parameters=parameters, idempotency=self.idempotency, ids=new_id
        )
        self._cancelling = Cancelling(store=store, clock=clock, accounting=accounting, stopper=self._stopper)
        self._changing = Changing(
            store=store,
            clock=clock,
            preparation=preparation,
            accounting=accounting,
            creating=self._creating,
            cancelling=self._cancelling,
        )
        self._pausing = Pausing(store=store, clock=clock, accounting=accounting, metrics=metrics, new_id=new_id)
        self._backfilling = Backfilling(store, clock, new_id=new_id)

    # --- creating and finding

    async def create(self, draft: Draft, *, owner: str, by: str) -> Job:
        """Make one job durable, together with others that are being created; its first runs are planned with it."""
        return await self._creating.create(draft, owner=owner, by=by)

    async def create_once(self, draft: Draft, *, owner: str, by: str, issue: Issue[Job]) -> Job | IdempotencyRecord:
        """Make one job durable together with its record, or answer the record of an earlier request."""
        return await self._creating.create_once(draft, owner=owner, by=by, issue=issue)

    async def create_many(
        self, drafts: Sequence[Draft | HoraeError], *, owner: str, by: str, asks: Sequence[Ask | None] | None = None
    ) -> list[JobId | HoraeError]:
        """Create each draft or tell why not; drafts that are errors already are passed on.

        With `asks`, a draft whose own request was met before is answered the id that it got then.
        """
        return await self._creating.create_many(drafts, owner=owner, by=by, asks=asks)

    async def find(self, job_id: JobId, *, owner: str | None) -> Job:
        """The job; raises NotFound also for another owner's."""
        return await find(self._store, job_id, owner=owner)

    async def find_by_key(self, owner: str, key: str) -> Job | None:
        """The unfinished job that holds a key, if there is one."""
        return await find_job_by_key(self._store, owner, key)

    # --- changing

    async def patch(self, job_id: JobId, revise: Revise, *, owner: str | None, expected: int | None = None) -> Job:
        """Write what `revise` makes of the job, if its revision is `expected`; None takes any revision.

        A job that is so already stays as it is.
        """
        return await self._changing.patch(job_id, revise, owner=owner, expected=expected)

    async def put(
        self, draft: Draft, *, owner: str, by: str, check: Callable[[Job | None], None] = lambda there: None
    ) -> Put:
        """Create the job with the key of the draft, or make it what the draft says; `check` may refuse what is there.

        A job that runs once and becomes a recurring one, or the other way round, is cancelled and has a successor.
        """
        return await self._changing.put(draft, owner=owner, by=by, check=check)

    async def pause(self, job_id: JobId, *, owner: str | None) -> Job:
        """Let no further slot run until the job is resumed; a run that is already due still runs."""
        return await self._pausing.pause(job_id, owner=owner)

    async def resume(self, job_id: JobId, *, missed: Misfire, owner: str | None) -> Job:
        """End a pause; `missed` says what becomes of the slots that came due in it."""
        return await self._pausing.resume(job_id, missed=missed, owner=owner)

    async def cancel(self, job_id: JobId, *, keep_running: bool, owner: str | None) -> Job:
        """End the job and its waiting runs, and unless they are kept its running ones."""
        return await self._cancelling.cancel(job_id, keep_running=keep_running, owner=owner)

    async def cancel_run(self, run_id: RunId, *, owner: str | None) -> Run:
        """End one run; one that a worker holds is `cancelling` until the worker confirms."""
        return await self._stopper.cancel(run_id, owner=owner)

    # --- runs outside of the schedule

    async def run_now(self, job_id: JobId, params: str | None, *, owner: str | None, by: str) -> Run:
        """Run the job once more at once, whatever its schedule says, also while it is paused or finished."""
        run = await self._creating.run_now(job_id, params, owner=owner, by=by)
        assert not isinstance(run, IdempotencyRecord)
        return run

    async def run_now_once(
        self, job_id: JobId, params: str | None, *, owner: str | None, by: str, issue: Issue[Run]
    ) -> Run | IdempotencyRecord:
        """As `run_now`, together with its record, or the record of an earlier request."""
        return await self._creating.run_now(job_id, params, owner=owner, by=by, issue=issue)

    async def backfill(
        self,
        job_id: JobId,
        start: datetime,
        end: datetime,
        *,
        owner: str | None,
        issue: Issue[Filling] | None = None,
    ) -> Filling | IdempotencyRecord:
        """Run a recurring job for each of its slots in a range of the past, beside what its schedule does."""
        return await self._backfilling.begin(job_id, start, end, owner=owner, issue=issue)
