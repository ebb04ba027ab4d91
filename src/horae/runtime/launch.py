"""From a command to a running node: users' code is loaded, unsafe set-ups are refused, the API is served."""

import asyncio
import contextlib
import errno
import gc
import importlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
import uvicorn
import uvloop

from horae.api.app import Api
from horae.api.auth.safety import refuse_unsafe
from horae.api.http.protocol import LimitedConnection
from horae.app import Horae
from horae.config import Settings, without_password
from horae.core.errors import HoraeError, Misconfigured, Unavailable
from horae.engine.node import NodeService, describe_roles
from horae.jobs.declaring import Declaring, Verdict
from horae.log_setup import configure_logs
from horae.runtime.supervisor import Supervisor
from horae.runtime.wiring import NodePlan, running_node
from horae.sdk.open_store import opened_connection

log = structlog.get_logger(__name__)

T = TypeVar("T")

START_SECONDS = 60.0  # for which a node that starts waits for a store that does not answer
RETRY_SECONDS = (0.2, 5.0)  # the first and the longest wait between two tries
GC_THRESHOLDS = (5_000, 20, 50)  # a young collection, of thousands of objects at most, takes less than a millisecond
# For which one thread may keep the others waiting. The writer of SQLite has to get the interpreter back while it holds
# the lock that other processes wait for: with Python's 5 ms it held that about half as long again.
SWITCH_SECONDS = 0.0005


class Announcer:
    """Logs that a node is ready and that it stops; `horae dev` greets people with a banner instead."""

    def ready(self, *, url: str | None, roles: frozenset[str], store: str) -> None:
        """Announce that the node works, and where its API is if it has one."""
        if url is not None:
            log.info("listening", url=url)
        log.info("ready", roles=describe_roles(roles), store=store)

    def stopping(self) -> None:
        """Announce that the node was asked to stop."""
        log.info("stopping")


def load_app(name: str | None) -> Horae:
    """The users' application, or an empty one."""
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


def run_node(settings: Settings, plan: NodePlan, *, processes: int = 1, announcer: Announcer | None = None) -> int:
    """Run a node, or several that share a port, until a signal stops them, and return the exit code."""
    configure_logs()
    refuse_unsafe(settings, roles=plan.roles, local=plan.local)
    if processes == 1:
        if "api" in plan.roles and plan.listener is None:
            _bind(settings).close()  # so that a port in use is reported before the node joins the others
        return run_to_the_end(_main(settings, plan, announcer or Announcer()))
    load_app(plan.app)  # so that a mistake is told once, and at once
    if "api" in plan.roles:
        plan = replace(plan, listener=_bind(settings))
    target = partial(_run_one_of_many, settings, plan)
    return Supervisor(target, processes, drain_seconds=settings.drain_seconds.total_seconds()).run()


def _run_one_of_many(settings: Settings, plan: NodePlan) -> int:
    """A node that is started again whatever ended it; what did by design is told in a line."""
    try:
        return run_node(settings, plan)
    except HoraeError as exc:
        log.critical("node_failed", reason=str(exc))
        return 1


def run_to_the_end(main: Coroutine[Any, Any, int]) -> int:
    """Run the event loop until `main` ends, whatever users' code does to it meanwhile.

    A task that a handler starts and that leaves with `sys.exit` ends its event loop, and so does `loop.stop()`. Nothing
    is lost by that: the loop goes on where it was, and who waits for the task is told how it ended.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        node = loop.create_task(main)
        while not node.done():
            try:
                loop.run_until_complete(node)
            except (SystemExit, KeyboardInterrupt, RuntimeError) as exc:
                if node.done() or loop.is_closed():
                    raise
                log.warning("event_loop_stopped", by=f"{type(exc).__name__}: {exc}", then="it goes on")
        return node.result()


async def _main(settings: Settings, plan: NodePlan, announcer: Announcer) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app = load_app(plan.app)
    settings = with_store_of(app, settings)
    async with contextlib.AsyncExitStack() as stack:
        running = await patiently(lambda: stack.enter_async_context(running_node(settings, plan, app)), stop)
        if running is None:
            return 0
        url = await stack.enter_async_context(_serving(running.api, settings, plan))
        _calm_collector()
        sys.setswitchinterval(SWITCH_SECONDS)
        announcer.ready(url=url, roles=plan.roles, store=without_password(settings.store))
        await _until_stopped(stop, running.node)
        announcer.stopping()
    return 0


async def patiently(
    join: Callable[[], Awaitable[T]], stop: asyncio.Event, *, within: float = START_SECONDS
) -> T | None:
    """What joining answers, tried again while the store does not; None when it is told to stop before that.

    A node may be started while its store is: whoever waits no longer ends, and a supervisor starts it again.
    """
    deadline, (wait, longest) = time.monotonic() + within, RETRY_SECONDS
    told = False
    while not stop.is_set():
        try:
            return await join()
        except Unavailable as exc:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if not told:
                log.warning("store_unavailable", reason=str(exc), gives_up_in_seconds=round(left))
                told = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait * random.uniform(0.5, 1), left)):
                await stop.wait()
        wait = min(wait * 2, longest)
    return None


def _calm_collector() -> None:
    """Keep the garbage collector from delaying starts: what is there now stays, and is not looked at again.

    A full collection of a node takes 20 ms. Runs are no garbage that it must find, so it need not look often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def prune_schedules(name: str, settings: Settings, *, dry_run: bool) -> list[Verdict]:
    """Make the store hold the schedules that an application declares, and no others of it."""
    app = load_app(name)
    settings = with_store_of(app, settings)
    async with opened_connection(settings, app.registry) as connection:
        declaring = Declaring(connection.store, connection.clock, connection.jobs, owner=app.owner, app=app.name)
        return await declaring.prune(app.declared, dry_run=dry_run)


def with_store_of(app: Horae, settings: Settings) -> Settings:
    """The settings, on the store that the application itself submits to unless a flag names another."""
    if app.store is None or settings.sources.get("store", "").startswith("flag"):
        return settings
    return replace(settings, store=app.store, sources={**settings.sources, "store": "the application"})


async def _until_stopped(stop: asyncio.Event, node: NodeService) -> None:
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(node.failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if failed.done():
        failed.result()
    failed.cancel()


@contextlib.asynccontextmanager
async def _serving(api: Api, settings: Settings, plan: NodePlan) -> AsyncIterator[str | None]:
    """Serve the API of the node at the address that this yields; None if the node does not have that role."""
    if "api" not in plan.roles:
        yield None
        return
    listener = plan.listener or _bind(settings)
    server = _Server(
        uvicorn.Config(
            api,
            http=LimitedConnection,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # nothing here asks for the address of a client
            timeout_graceful_shutdown=3,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        yield f"http://{settings.host}:{listener.getsockname()[1]}"
    finally:
        api.services.close_streams()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """A server whose process handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bind(settings: Settings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            reason = f"port {port} is in use, perhaps by another Horae; stop that one"
        else:
            reason = f"cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}"
        raise Misconfigured(f"{reason}, or choose another port with --port or HORAE_PORT") from exc
