"""The use cases of jobs, in one place: create, update, pause, resume, cancel, run now, backfill."""

from datetime import timedelta

from horae.core.ids import Ids
from horae.core.model import Job, JobId
from horae.jobs.backfill import Backfiller
from horae.jobs.bulk_create import BulkCreator
from horae.jobs.cancel import Canceller
from horae.jobs.catch_up import CatchUp
from horae.jobs.create import Creator
from horae.jobs.idempotency import Idempotency
from horae.jobs.params import Parameters
from horae.jobs.pause import Pauser
from horae.jobs.prepare import Preparation
from horae.jobs.task_catalog import TaskCatalog
from horae.jobs.update import Updater
from horae.lookup import get_job
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.secrets.sealer import Sealer


class Jobs:
    """The use cases that the API and the SDK share; `owner` None means the jobs of every owner."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tasks: TaskCatalog,
        parameters: Parameters,
        metrics: Metrics,
        new_id: Ids,
        horizon: timedelta,
        sealer: Sealer | None = None,
    ) -> None:
        """Without a `sealer` secrets are stored unencrypted."""
        self._store = store
        self.idempotency = Idempotency(store, clock)
        self.preparation = Preparation(tasks, parameters, sealer or Sealer(), new_id=new_id, horizon=horizon)
        catch_up = CatchUp(store, clock, new_id=new_id, horizon=horizon)

        creator = Creator(
            store=store, clock=clock, preparation=self.preparation, idempotency=self.idempotency, ids=new_id
        )
        self.create = creator.create
        self.create_once = creator.create_once
        self.create_many = creator.create_many
        self.run_now, self.run_many = creator.run_now, creator.run_many
        self.bulk = BulkCreator(
            store=store, creator=creator, parameters=parameters, idempotency=self.idempotency, ids=new_id
        )

        canceller = Canceller(store=store, clock=clock, catch_up=catch_up, metrics=metrics)
        self.cancel, self.cancel_many = canceller.cancel, canceller.cancel_many
        self.cancel_run, self.cancel_runs = canceller.cancel_run, canceller.cancel_runs

        updater = Updater(
            store=store,
            clock=clock,
            preparation=self.preparation,
            catch_up=catch_up,
            creator=creator,
            canceller=canceller,
        )
        self.patch = updater.patch
        self.put = updater.put

        pauser = Pauser(store=store, clock=clock, catch_up=catch_up, metrics=metrics, new_id=new_id)
        self.pause, self.pause_many = pauser.pause, pauser.pause_many
        self.resume, self.resume_many = pauser.resume, pauser.resume_many

        self.backfill = Backfiller(store, clock, new_id=new_id).backfill

    async def find(self, job_id: JobId, *, owner: str | None) -> Job:
        """Return the job; raises NotFound also for a job of another owner."""
        return await get_job(self._store, job_id, owner=owner)
