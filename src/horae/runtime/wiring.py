"""The composition root: builds a node with its roles from the settings and users' code, and runs it."""

import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from horae import __version__
from horae.adapters import (
    blobs_to_prune,
    make_archive,
    make_blobs,
    open_heartbeat_store,
    opened_queue,
    opened_store,
    sync_clock,
    try_object_stores,
)
from horae.api.app import Api, create_app, create_probes
from horae.api.auth.guard import Guard, guard_of
from horae.api.dispatch.context import Services
from horae.archive.reader import Archive
from horae.config import ROLES, Settings
from horae.core.ids import Ids
from horae.core.model import LOCAL, Node, NodeId
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.heartbeat_thread import HeartbeatThread
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.shards import shards_of
from horae.engine.cluster.wall_clock import WallClockMonitor
from horae.engine.duties.archiving import Archiver
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.duties.watcher import Watcher
from horae.engine.execution.executor import Executor
from horae.engine.node import NodeService
from horae.engine.worker.state import AttemptRunner
from horae.engine.worker.worker import Worker
from horae.jobs.declared import DeclaredOutcome, DeclaredQueues, DeclaredResult, DeclaredSchedules
from horae.metrics import Metrics
from horae.offering import offering_store
from horae.ports.blobs import Blobs
from horae.ports.clock import StoreClock
from horae.ports.files import Files
from horae.ports.queue import Queue
from horae.ports.store import Store
from horae.runtime.demo import seed_demo_jobs
from horae.runtime.plan import NodePlan, Program
from horae.runtime.serving import serving
from horae.sdk.connection import Connection
from horae.sdk.wait import PollingWaiter
from horae.secrets.sealer import Sealer
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import Registry

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all parts of a node share."""

    settings: Settings
    plan: NodePlan
    store: Store
    queue: Queue | None  # in front of the store; None: there is none
    blobs: Blobs
    archive: Files | None
    clock: StoreClock
    ids: Ids
    metrics: Metrics
    registry: Registry
    sealer: Sealer

    @property
    def timing(self) -> Timing:
        """The intervals that the settings name."""
        return Timing(
            heartbeat=self.settings.heartbeat_seconds,
            dead_after=self.settings.dead_after_seconds,
            horizon=self.settings.horizon_seconds,
            lead=self.settings.lead_seconds,
            drain=self.settings.drain_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """A node that has joined the cluster, its use cases, and the API over them."""

    node: NodeService
    services: Services
    api: Api


@contextlib.asynccontextmanager
async def running_node(
    settings: Settings,
    plan: NodePlan,
    *programs: Program,
    guard: Guard | None = None,
    probes: socket.socket | None = None,
) -> AsyncIterator[RunningNode]:
    """Join the cluster, run a node with its roles, and leave at the end; the caller serves the API.

    `guard` admits requests; None: as the settings say, and without authentication to local names only. At `probes` a
    node without the API says how it is, from before it joins until it has left.
    """
    async with contextlib.AsyncExitStack() as stack:
        parts = await opened_parts(stack, settings, plan, programs)
        clock = parts.clock
        executor = executor_of(parts) if "worker" in plan.roles else None
        node = _node(parts, executor)
        services = services_of(parts, ready=lambda: node.ready)
        stack.push_async_callback(services.usage.close)
        local_names = plan.local or (guard is None and settings.auth == "off")
        guard = guard or guard_of(settings, now=lambda: clock.now().timestamp())
        api = create_app(services, guard=guard, local_names=local_names)
        # From before the first run starts until the last one has ended.
        connection = stack.enter_context(bound(programs, services))
        if executor is not None:
            for program in programs:
                await program.hooks.start_worker()
                stack.push_async_callback(program.hooks.stop_worker)
            stack.push_async_callback(executor.close)
        if probes is not None:
            await stack.enter_async_context(serving(create_probes(services), probes.dup()))
        await node.start()
        stack.push_async_callback(node.stop)
        if plan.demo:
            await seed_demo_jobs(services.jobs, parts.store, owner=LOCAL)
        if executor is not None:
            for program in programs:
                await declare(program, connection)
        yield RunningNode(node=node, services=services, api=api)


async def opened_parts(
    stack: contextlib.AsyncExitStack,
    settings: Settings,
    plan: NodePlan,
    programs: Sequence[Program],
    *,
    patience: timedelta = timedelta(),
) -> Parts:
    """Open the store and the queue, which the stack closes, and follow the clock of the store.

    `patience` is how long a write waits until its tickets are offered: the process may end or freeze right after it.
    """
    metrics, clock = Metrics(), StoreClock()
    opening = opened_store(settings.store, own=plan.local)
    store: Store = metrics.measured(await stack.enter_async_context(opening))
    await sync_clock(clock, store)
    queue = await stack.enter_async_context(opened_queue(settings.queue, lead=settings.lead_seconds))
    if queue is not None:
        offering = offering_store(
            store, queue, clock, metrics.tickets, horizon=settings.horizon_seconds, patience=patience
        )
        store = await stack.enter_async_context(offering)
    blobs, archive = make_blobs(settings.blobs, store), make_archive(settings.archive)
    await try_object_stores(blobs, archive)
    return Parts(
        settings=settings,
        plan=plan,
        store=store,
        queue=queue,
        blobs=blobs,
        archive=archive,
        clock=clock,
        ids=Ids(wall=lambda: clock.now().timestamp()),
        metrics=metrics,
        registry=Registry().with_tasks(*(program.registry for program in programs), builtin_tasks()),
        sealer=Sealer(settings.encryption_key),
    )


def executor_of(parts: Parts) -> Executor:
    """Return what runs attempts; must be called on the event loop."""
    return Executor(
        parts.registry,
        parts.blobs,
        parts.clock,
        threads=parts.plan.concurrency,
        allow_shell=parts.settings.allow_shell,
        http_allow=parts.settings.http_allow,
        sealer=parts.sealer,
    )


def _node(parts: Parts, executor: Executor | None) -> NodeService:
    """Connect the duties of a node; without an executor it is no worker."""
    store, clock, timing = parts.store, parts.clock, parts.timing
    lease = Lease(clock, timing)
    thread = HeartbeatThread(
        lambda: open_heartbeat_store(parts.settings.store),
        lambda own_store: heartbeat_of(parts, own_store, lease, running=lambda: 0 if worker is None else worker.busy),
        clock,
        timing,
    )

    def heartbeat() -> Heartbeat:
        assert thread.heartbeat is not None, "no duty starts before the node has joined"
        return thread.heartbeat

    def shards() -> list[int]:
        """Return the planner shards of this node, among the nodes that sent a heartbeat lately."""
        return shards_of(heartbeat().node.id, heartbeat().nodes, heard_since=clock.now() - timing.missed_after)

    worker = None
    if executor is not None:
        worker = worker_of(parts, executor, lease, node_id=lambda: heartbeat().node.id)
    planner = None
    if "planner" in parts.plan.roles:
        planner = Planner(store, clock, parts.metrics, horizon=timing.horizon, shards=shards, new_id=parts.ids)
    watcher = None
    if planner is not None and parts.queue is not None:
        watcher = Watcher(store, parts.queue, clock, parts.metrics.tickets, timing=timing, shards=shards)
    return NodeService(
        store=store,
        clock=clock,
        lease=lease,
        timing=timing,
        heartbeat_thread=thread,
        janitor=Janitor(store, clock, lease, timing),
        retention=retention_of(parts, shards if planner is not None else list),
        planner=planner,
        worker=worker,
        queue=parts.queue,
        watcher=watcher,
    )


def retention_of(parts: Parts, shards: Callable[[], Sequence[int]]) -> Retention:
    """Return what deletes history; with an archive the planners that have `shards` write it there before."""
    keep, archiver = parts.settings.retention, None
    if parts.archive is not None:
        archiver = Archiver(
            parts.store, parts.blobs, parts.archive, parts.clock, parts.metrics, keep=keep, shards=shards
        )
    return Retention(parts.store, parts.clock, keep=keep, blobs=blobs_to_prune(parts.blobs), archiver=archiver)


def worker_of(parts: Parts, executor: AttemptRunner, lease: Lease, *, node_id: Callable[[], NodeId]) -> Worker:
    """Return a worker of the tasks that users' code and Horae itself have."""
    return Worker(
        store=parts.store,
        clock=parts.clock,
        lease=lease,
        executor=executor,
        metrics=parts.metrics,
        timing=parts.timing,
        node_id=node_id,
        tasks=parts.registry.names,
        queues=parts.plan.queues,
        concurrency=parts.plan.concurrency,
        random_factor=random.random,
        queue=parts.queue,
    )


def heartbeat_of(parts: Parts, own_store: Store, lease: Lease, *, running: Callable[[], int]) -> Heartbeat:
    """Return the heartbeat on a connection of its own."""
    return Heartbeat(
        own_store,
        parts.clock,
        lease,
        _identity(parts),
        parts.timing,
        parts.metrics,
        new_id=parts.ids,
        running=running,
        wall_ahead=WallClockMonitor(parts.clock).check,
    )


def _identity(parts: Parts) -> Node:
    """Return this process as the other nodes see it."""
    now = parts.clock.now()
    works = "worker" in parts.plan.roles
    return Node(
        id=NodeId(parts.ids()),
        name=f"{socket.gethostname()}:{os.getpid()}",
        roles=tuple(role for role in ROLES if role in parts.plan.roles),
        version=__version__,
        queues=tuple(parts.plan.queues),
        concurrency=parts.plan.concurrency if works else 0,
        started_at=now,
        beat_at=now,
        tasks=parts.registry.schemas() if works else {},
    )


def services_of(parts: Parts, *, ready: Callable[[], bool]) -> Services:
    """Return the use cases over the store."""
    return Services.over(
        parts.store,
        parts.blobs,
        parts.clock,
        parts.metrics,
        new_id=parts.ids,
        horizon=parts.timing.horizon,
        dead_after=parts.timing.dead_after,
        task_defaults=parts.registry.get,
        check_params=parts.registry.check,
        ready=ready,
        sealer=parts.sealer,
        archive=None if parts.archive is None else Archive(parts.archive),
    )


@contextlib.contextmanager
def bound(programs: Sequence[Program], services: Services) -> Iterator[Connection]:
    """Let tasks that run here submit others through the store of this node."""
    with contextlib.ExitStack() as stack:
        waiter = stack.enter_context(contextlib.closing(PollingWaiter(services.store)))
        connection = Connection(store=services.store, clock=services.clock, jobs=services.jobs, waiter=waiter)
        for program in programs:
            stack.enter_context(program.bind(connection))
        yield connection


async def declare(program: Program, connection: Connection) -> None:
    """Apply the queue settings and schedules that users' code declares, and log the outcome of each."""
    store, clock = connection.store, connection.clock
    if program.queues:
        for result in await DeclaredQueues(store, clock, app=program.name).apply(program.queues):
            _log_declared("queue", result, queue=result.key)
    if program.declared:
        schedules = DeclaredSchedules(store, clock, connection.jobs, owner=program.owner, app=program.name)
        for result in await schedules.apply(program.declared):
            _log_declared("schedule", result, key=result.key, job=result.job_id)


def _log_declared(what: str, result: DeclaredResult, **fields: str | None) -> None:
    write = log.error if result.outcome is DeclaredOutcome.REFUSED else log.info
    given = {name: value for name, value in fields.items() if value}
    write(f"{what}_{result.outcome}", **given, **({"detail": result.detail} if result.detail else {}))
