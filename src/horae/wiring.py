"""The composition root: from settings to a running node; the only module that knows every name."""

import asyncio
import contextlib
import importlib
import ipaddress
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
import uvicorn
import uvloop

from horae import __version__
from horae.api.app import create_app
from horae.api.auth import LOCAL
from horae.api.context import Services
from horae.app import Horae
from horae.blob import AgingBlobs, Blobs
from horae.blobs.file import FileBlobs
from horae.clock import StoreClock
from horae.config import Settings
from horae.core.errors import Misconfigured
from horae.core.model import Node, NodeId
from horae.demo import seed_demo_jobs
from horae.logs import configure_logs
from horae.metrics import Metrics
from horae.services.execution import Executor
from horae.services.ids import Ids
from horae.services.janitor import Janitor
from horae.services.membership import Heart, Lease, Timing, shards_of
from horae.services.node import NodeService, describe_roles
from horae.services.planner import Planner
from horae.services.pulse import Pulse
from horae.services.retention import Retention
from horae.services.settler import Settler
from horae.services.worker import Worker
from horae.store import Store
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite_executor import InlineExecutor, SqliteExecutor
from horae.supervisor import Supervisor
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import Registry

if TYPE_CHECKING:
    from horae.stores.postgres import PostgresStore

log = structlog.get_logger(__name__)

ROLES = ("api", "planner", "worker")
DEFAULT_CONCURRENCY = 100
FIRST_READINGS = 4  # of the store's clock, before anything is done by it


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


def make_store(url: str, *, sqlite: SqliteExecutor | None = None) -> "SqliteStore | PostgresStore":
    """The store of an address; nothing is opened yet. `sqlite` says where SQLite's work is done."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return SqliteStore(sqlite_path(url), executor=sqlite)
    if scheme in ("postgresql", "postgres"):
        try:
            from horae.stores.postgres import PostgresStore
        except ImportError as exc:
            raise Misconfigured("PostgreSQL needs its driver: pip install 'horae[postgres]'") from exc
        return PostgresStore(url)
    raise Misconfigured(f"HORAE_STORE = {url!r}: must begin with sqlite:/// or postgresql://")


def sqlite_path(url: str) -> Path:
    """The file of a SQLite address: three slashes relative, four absolute."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or url == prefix:
        raise Misconfigured(f"HORAE_STORE = {url!r}: use sqlite:///relative.db or sqlite:////absolute.db")
    return Path(url.removeprefix(prefix))


def make_blobs(address: str, store: Store) -> Blobs:
    """Where logs and large payloads are kept."""
    if address == "store":
        return store.blobs
    if address.startswith("file:///"):
        return FileBlobs(Path(address.removeprefix("file://")))
    raise Misconfigured(f"HORAE_BLOBS = {address!r}: must be `store` or file:///a/folder")


def _aging(blobs: Blobs) -> AgingBlobs | None:
    return blobs if isinstance(blobs, FileBlobs) else None


def load_app(name: str | None) -> Horae:
    """The users' application, with Horae's own tasks beside theirs."""
    if name is None:
        return Horae()
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Misconfigured(f"--app {name!r}: use MODULE:APP, for example tasks:app")
    sys.path.insert(0, os.getcwd())
    try:
        app = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as exc:
        raise Misconfigured(f"--app {name!r}: {exc}; is the module in this folder or installed?") from exc
    except AttributeError as exc:
        raise Misconfigured(f"--app {name!r}: the module has no {attribute!r}") from exc
    if not isinstance(app, Horae):
        raise Misconfigured(f"--app {name!r} is a {type(app).__name__}, not a Horae()")
    return app


def run_node(settings: Settings, plan: NodePlan, *, processes: int = 1) -> int:
    """Run a node, or several that share a port, until told to stop; the exit code."""
    configure_logs()
    _refuse_unsafe(settings, plan)
    if processes == 1:
        return uvloop.run(_main(settings, plan))
    load_app(plan.app)  # so that a mistake is told once, and at once
    if "api" in plan.roles:
        plan = replace(plan, listener=_bind(settings.host, settings.port))
    target = partial(run_node, settings, plan)
    return Supervisor(target, processes, drain_seconds=settings.drain_seconds.total_seconds()).run()


async def _main(settings: Settings, plan: NodePlan) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running_node(settings, plan) as node:
        await _until_stopped(stop, node)
        log.info("stopping")
    return 0


async def _until_stopped(stop: asyncio.Event, node: NodeService) -> None:
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(node.failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if failed.done():
        failed.result()
    failed.cancel()


async def follow_store(clock: StoreClock, store: Store) -> None:
    """Set a new clock by the quickest of a few answers of the store.

    The first takes longer on the way there than back, for it prepares the statement: a clock set by its middle was
    measured to be up to 3 ms ahead, and would start runs early.
    """
    readings: list[tuple[float, datetime, float]] = []
    for _ in range(FIRST_READINGS):
        asked_at = clock.elapsed()
        store_time = await store.time()
        readings.append((asked_at, store_time, clock.elapsed()))
    asked_at, store_time, answered_at = min(readings, key=lambda reading: reading[2] - reading[0])
    clock.sync(store_time, asked_at=asked_at, answered_at=answered_at)


@contextlib.asynccontextmanager
async def running_node(settings: Settings, plan: NodePlan) -> AsyncIterator[NodeService]:
    """A node with its roles, from joining the cluster to leaving it."""
    registry = load_app(plan.app).registry.with_tasks(builtin_tasks())
    async with _opened(make_store(settings.store)) as opened:
        metrics = Metrics()
        store: Store = metrics.measured(opened)
        clock = StoreClock()
        await follow_store(clock, store)
        parts = _Parts(
            settings=settings,
            plan=plan,
            store=store,
            blobs=make_blobs(settings.blobs, store),
            clock=clock,
            ids=Ids(wall=lambda: clock.now().timestamp()),
            metrics=metrics,
            registry=registry,
        )
        async with _working(parts) as node, _serving(parts, node):
            log.info("ready", roles=describe_roles(plan.roles), store=without_password(settings.store))
            yield node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What everything on a node shares."""

    settings: Settings
    plan: NodePlan
    store: Store
    blobs: Blobs
    clock: StoreClock
    ids: Ids
    metrics: Metrics
    registry: Registry

    @property
    def timing(self) -> Timing:
        return Timing(
            heartbeat=self.settings.heartbeat_seconds,
            dead_after=self.settings.dead_after_seconds,
            horizon=self.settings.horizon_seconds,
            lead=self.settings.lead_seconds,
            drain=self.settings.drain_seconds,
        )


@contextlib.asynccontextmanager
async def _opened(store: "SqliteStore | PostgresStore") -> AsyncIterator["SqliteStore | PostgresStore"]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _working(parts: _Parts) -> AsyncIterator[NodeService]:
    """The duties of the node, and its executor if it is a worker."""
    works = "worker" in parts.plan.roles
    executor = _executor(parts) if works else None
    node = _node(parts, executor)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
        if executor is not None:
            await executor.close()


def _executor(parts: _Parts) -> Executor:
    return Executor(
        parts.registry,
        parts.blobs,
        parts.clock,
        threads=parts.plan.concurrency,
        allow_shell=parts.settings.allow_shell,
        http_allow=parts.settings.http_allow,
    )


def _node(parts: _Parts, executor: Executor | None) -> NodeService:
    timing, store, clock = parts.timing, parts.store, parts.clock
    lease = Lease(clock, timing)
    worker: Worker | None = None
    settler: Settler | None = None

    def beaten() -> None:
        parts.metrics.synced(clock.offset)
        node.beaten()

    def make_heart(own_store: Store) -> Heart:
        return Heart(
            own_store,
            clock,
            lease,
            _identity(parts),
            timing,
            new_id=parts.ids,
            running=lambda: 0 if worker is None else worker.running,
            beaten=beaten,
        )

    pulse = Pulse(lambda: _heart_store(parts.settings.store), make_heart, clock, timing)

    def node_id() -> NodeId:
        assert pulse.heart is not None
        return pulse.heart.node.id

    def shards() -> list[int]:
        assert pulse.heart is not None
        return shards_of(node_id(), pulse.heart.nodes)

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
        retention=Retention(store, clock, keep=parts.settings.retention, blobs=_aging(parts.blobs)),
        planner=planner if "planner" in parts.plan.roles else None,
        worker=worker,
        settler=settler,
    )
    return node


def _identity(parts: _Parts) -> Node:
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


async def _heart_store(url: str) -> Store:
    """A connection of its own for the heartbeat, whose thread does the work itself."""
    store: Store = make_store(url, sqlite=InlineExecutor())
    await store.open()
    return store


@contextlib.asynccontextmanager
async def _serving(parts: _Parts, node: NodeService) -> AsyncIterator[None]:
    """The API of the node, if it has that role."""
    if "api" not in parts.plan.roles:
        yield
        return
    settings = parts.settings
    services = Services.over(
        parts.store,
        parts.blobs,
        parts.clock,
        parts.metrics,
        new_id=parts.ids,
        horizon=parts.timing.horizon,
        task_defaults=parts.registry.get,
        check_params=parts.registry.check,
        ready=lambda: node.ready,
    )
    listener = parts.plan.listener or _bind(settings.host, settings.port)
    server = _Server(
        uvicorn.Config(
            create_app(services, local_names=parts.plan.local),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=3,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        log.info("listening", url=f"http://{settings.host}:{settings.port}")
        if parts.plan.demo:
            await seed_demo_jobs(services.jobs, parts.store, owner=LOCAL)
        yield
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """A server whose process handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        raise Misconfigured(f"cannot listen on {host}:{port}: {exc.strerror}; choose another with --port") from exc


def _refuse_unsafe(settings: Settings, plan: NodePlan) -> None:
    if "api" not in plan.roles or settings.auth != "off":
        return
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = settings.host == "localhost"
    if not loopback:
        raise Misconfigured(
            f"without authentication Horae listens on loopback only, not on {settings.host};"
            " put a proxy that authenticates in front of 127.0.0.1"
        )


def without_password(url: str) -> str:
    """An address that can be shown."""
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":***@") if parts.password else url
