"""The composition root: from settings and users' code to a working node, with everything that its roles need."""

import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from horae import __version__
from horae.adapters import blobs_to_prune, make_blobs, open_heartbeat_store, opened_store, sync_clock
from horae.api.app import Api, create_app
from horae.api.auth.guard import Guard, guard_of
from horae.api.dispatch.context import Services
from horae.config import ROLES, Settings
from horae.core.errors import Misconfigured
from horae.core.ids import Ids
from horae.core.model import LOCAL, Node, NodeId
from horae.engine.cluster.heartbeat import HeartbeatThread
from horae.engine.cluster.lease import Heartbeat, Lease, Timing, shards_of
from horae.engine.cluster.wall_clock import WallClockMonitor
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.retention import Retention
from horae.engine.execution.executor import Executor
from horae.engine.node import NodeService
from horae.engine.worker.settler import Settler
from horae.engine.worker.worker import Worker
from horae.jobs.declared import Declared
from horae.jobs.declaring import Declaring, Outcome
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import StoreClock
from horae.ports.store import Store
from horae.runtime.demo import seed_demo_jobs
from horae.sdk.connection import Connection
from horae.sdk.wait import Watch
from horae.secrets.sealer import Sealer
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import Registry

log = structlog.get_logger(__name__)

DEFAULT_CONCURRENCY = 100


class Program(Protocol):
    """Users' code: what a `Horae()` tells a node."""

    name: str
    owner: str

    @property
    def registry(self) -> Registry: ...

    @property
    def declared(self) -> Sequence[Declared]: ...

    def bind(self, connection: Connection) -> AbstractContextManager[None]:
        """Submit through this connection, in the event loop that runs here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What one process shall do."""

    roles: frozenset[str] = frozenset(ROLES)
    app: str | None = None  # MODULE:APP
    queues: Sequence[str] = ()
    concurrency: int = DEFAULT_CONCURRENCY
    demo: bool = False
    local: bool = False  # for one person on one machine: under no other name than localhost
    listener: socket.socket | None = None  # of several processes that share it; None: listen as the settings say


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What everything on a node shares."""

    settings: Settings
    plan: NodePlan
    store: Store
    blobs: Blobs
    clock: StoreClock
    ids: Ids
    metrics: Metrics
    registry: Registry
    sealer: Sealer

    @property
    def timing(self) -> Timing:
        return Timing(
            heartbeat=self.settings.heartbeat_seconds,
            dead_after=self.settings.dead_after_seconds,
            horizon=self.settings.horizon_seconds,
            lead=self.settings.lead_seconds,
            drain=self.settings.drain_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """A node that has joined, and the API over its use cases."""

    node: NodeService
    services: Services
    api: Api


def checked_roles(roles: Iterable[str]) -> frozenset[str]:
    """Roles that there are, and at least one; raises Misconfigured."""
    given = frozenset(roles)
    if not given or not given <= set(ROLES):
        raise Misconfigured(f"roles {', '.join(sorted(given)) or '(none)'}: choose among {', '.join(ROLES)}")
    return given


@contextlib.asynccontextmanager
async def running_node(
    settings: Settings, plan: NodePlan, program: Program, *, guard: Guard | None = None
) -> AsyncIterator[RunningNode]:
    """A node with its roles, from joining the cluster to leaving it; whoever needs its API serves it.

    `guard` lets requests in; None: as the settings say.
    """
    registry = program.registry.with_tasks(builtin_tasks())
    async with opened_store(settings.store) as opened:
        metrics = Metrics()
        store: Store = metrics.measured(opened)
        clock = StoreClock()
        await sync_clock(clock, store)
        parts = Parts(
            settings=settings,
            plan=plan,
            store=store,
            blobs=make_blobs(settings.blobs, store),
            clock=clock,
            ids=Ids(wall=lambda: clock.now().timestamp()),
            metrics=metrics,
            registry=registry,
            sealer=Sealer(settings.encryption_key),
        )
        executor = _executor(parts) if "worker" in plan.roles else None
        node = _node(parts, executor)
        services = _services(parts, node)
        guard = guard or guard_of(settings, now=lambda: clock.now().timestamp())
        api = create_app(services, guard=guard, local_names=plan.local)
        with _bound(program, services) as connection:  # before the first run starts, and until the last one has ended
            async with _working(node, executor):
                if plan.demo:
                    await seed_demo_jobs(services.jobs, store, owner=LOCAL)
                if executor is not None and program.declared:
                    await _declare(program, connection)
                yield RunningNode(node=node, services=services, api=api)


@contextlib.asynccontextmanager
async def _working(node: NodeService, executor: Executor | None) -> AsyncIterator[None]:
    """The duties of the node, and its executor if it is a worker."""
    try:
        await node.start()
        try:
            yield
        finally:
            await node.stop()
    finally:
        if executor is not None:
            await executor.close()


def _executor(parts: Parts) -> Executor:
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
    timing, store, clock = parts.timing, parts.store, parts.clock
    lease = Lease(clock, timing)
    worker: Worker | None = None
    settler: Settler | None = None

    wall = WallClockMonitor(clock)

    def wall_ahead() -> timedelta:
        ahead = wall.look()
        parts.metrics.wall_seen(ahead)
        return ahead

    def beaten() -> None:
        parts.metrics.synced(clock.offset)
        node.beaten()

    def make_heart(own_store: Store) -> Heartbeat:
        return Heartbeat(
            own_store,
            clock,
            lease,
            _identity(parts),
            timing,
            new_id=parts.ids,
            running=lambda: 0 if worker is None else worker.running,
            beaten=beaten,
            wall_ahead=wall_ahead,
        )

    pulse = HeartbeatThread(lambda: open_heartbeat_store(parts.settings.store), make_heart, clock, timing)

    def node_id() -> NodeId:
        assert pulse.heart is not None
        return pulse.heart.node.id

    def shards() -> list[int]:
        assert pulse.heart is not None
        return shards_of(node_id(), pulse.heart.nodes, heard_since=clock.now() - timing.missed_after)

    if executor is not None:
        settler = Settler(store, clock)
        worker = Worker(
            store=store,
            clock=clock,
            lease=lease,
            executor=executor,
            settler=settler,
            metrics=parts.metrics,
            timing=timing,
            node_id=node_id,
            tasks=parts.registry.names,
            queues=parts.plan.queues,
            concurrency=parts.plan.concurrency,
            luck=random.random,
        )
    planner = Planner(store, clock, parts.metrics, horizon=timing.horizon, shards=shards, new_id=parts.ids)
    node = NodeService(
        store=store,
        clock=clock,
        lease=lease,
        timing=timing,
        pulse=pulse,
        janitor=Janitor(store, clock, lease, timing),
        retention=Retention(store, clock, keep=parts.settings.retention, blobs=blobs_to_prune(parts.blobs)),
        planner=planner if "planner" in parts.plan.roles else None,
        worker=worker,
        settler=settler,
    )
    return node


def _identity(parts: Parts) -> Node:
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


def _services(parts: Parts, node: NodeService) -> Services:
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
        ready=lambda: node.ready,
        sealer=parts.sealer,
    )


@contextlib.contextmanager
def _bound(program: Program, services: Services) -> Iterator[Connection]:
    """Have tasks that run here submit others through the store of this node."""
    with contextlib.closing(Watch(services.store)) as ends:
        connection = Connection(
            store=services.store,
            clock=services.clock,
            jobs=services.jobs,
            inspection=services.inspection,
            ends=ends,
        )
        with program.bind(connection):
            yield connection


async def _declare(program: Program, connection: Connection) -> None:
    """Bring the schedules of users' code to the store, and tell what became of them."""
    declaring = Declaring(connection.store, connection.clock, connection.jobs, owner=program.owner, app=program.name)
    for verdict in await declaring.apply(program.declared):
        tell = log.error if verdict.outcome is Outcome.REFUSED else log.info
        told = {"job": verdict.job_id, "detail": verdict.detail}
        tell(f"schedule_{verdict.outcome}", key=verdict.key, **{name: value for name, value in told.items() if value})
