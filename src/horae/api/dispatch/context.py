"""The services that the routes use, and how a request finds them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from starlette.requests import Request

from horae.api.quotas.meter import UsageMeter
from horae.archive.reader import Archive
from horae.archive.restore import Restorer
from horae.core.drafts import TaskDefaults
from horae.core.ids import Ids
from horae.events.feed import Feed
from horae.jobs.dead_letters import DeadLetters
from horae.jobs.params import Parameters
from horae.jobs.queues import Queues
from horae.jobs.service import Jobs
from horae.jobs.task_catalog import CheckParams, TaskCatalog
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.queries.jobs import JobQueries
from horae.queries.log_tail import LogTails
from horae.queries.nodes import NodeQueries
from horae.queries.why import StartExplainer
from horae.secrets.sealer import Sealer


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that the routes call: the use cases, the queries, the store and the clock."""

    jobs: Jobs
    queries: JobQueries
    dead_letters: DeadLetters
    queues: Queues
    nodes: NodeQueries
    why: StartExplainer
    tasks: TaskCatalog
    feed: Feed
    log_tails: LogTails
    usage: UsageMeter
    store: Store
    clock: Clock
    metrics: Metrics
    archive: Archive | None  # None: ended runs are not archived
    restorer: Restorer | None
    ready: Callable[[], bool]  # whether this node's lease is valid
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # set when the server stops, so that streams end

    @classmethod
    def over(
        cls,
        store: Store,
        blobs: Blobs,
        clock: Clock,
        metrics: Metrics,
        *,
        new_id: Ids,
        horizon: timedelta,
        task_defaults: Callable[[str], TaskDefaults | None],
        check_params: CheckParams,
        ready: Callable[[], bool],
        dead_after: timedelta = timedelta(seconds=15),
        sealer: Sealer | None = None,
        archive: Archive | None = None,
    ) -> "Services":
        """Build the services over a store; `task_defaults` returns None for a task that this process does not know."""
        parameters = Parameters(blobs)
        tasks = TaskCatalog(store, clock, defaults=task_defaults, check_params=check_params)
        queries = JobQueries(store=store, blobs=blobs, parameters=parameters, clock=clock, archive=archive)
        jobs = Jobs(
            store=store,
            clock=clock,
            tasks=tasks,
            parameters=parameters,
            metrics=metrics,
            new_id=new_id,
            horizon=horizon,
            sealer=sealer,
        )
        return cls(
            jobs=jobs,
            queries=queries,
            dead_letters=DeadLetters(store=store, clock=clock, preparation=jobs.preparation, new_id=new_id),
            queues=Queues(store, clock),
            nodes=NodeQueries(store, clock, dead_after=dead_after),
            why=StartExplainer(store, clock, dead_after=dead_after),
            tasks=tasks,
            feed=Feed(store, queries, clock),
            log_tails=LogTails(store, queries, blobs, clock),
            usage=UsageMeter(store, clock),
            store=store,
            clock=clock,
            metrics=metrics,
            archive=archive,
            restorer=None if archive is None else Restorer(archive, store, blobs, clock),
            ready=ready,
        )

    def close_streams(self) -> None:
        """End every stream, because a stopping server waits until its responses are complete."""
        self.closing.set()
        self.feed.wake()


def services_of(request: Request) -> Services:
    """Return the services of the application that received a request."""
    services: Services = request.app.services
    return services
