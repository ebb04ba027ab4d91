"""Runs a node, or several processes of one, from the command line until a signal stops it."""

import asyncio
import contextlib
import gc
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
import uvloop

from horae.api.auth.safety import refuse_unsafe
from horae.config import Settings, without_password
from horae.core.errors import HoraeError, Unavailable
from horae.engine.node import NodeService, describe_roles
from horae.log_setup import accept_task_logs, configure_logs
from horae.runtime.applications import load_apps, with_store_of
from horae.runtime.plan import NodePlan
from horae.runtime.serving import bind, serving
from horae.runtime.stop_signals import END_AT_ONCE, StopRequest, stopping_on_signals
from horae.runtime.supervisor import Supervisor
from horae.runtime.wiring import running_node

log = structlog.get_logger(__name__)

T = TypeVar("T")

START_SECONDS = 60.0  # how long a starting node waits for a store that does not answer
RETRY_SECONDS = (0.2, 5.0)  # the first and the longest wait between two attempts to join
GC_THRESHOLDS = (5_000, 20, 50)  # a young collection, of thousands of objects at most, takes less than a millisecond
# How long one thread may keep the interpreter. The writer of SQLite needs it back while it holds the lock that other
# processes wait for: with Python's 5 ms it held the lock about half as long again.
SWITCH_SECONDS = 0.0005


class Announcer:
    """Logs that a node is ready and that it stops; `horae dev` shows people a banner instead."""

    def ready(self, *, url: str | None, roles: frozenset[str], store: str) -> None:
        """Announce that the node works, and where its API or its probes are if it has any."""
        if url is not None:
            log.info("listening", url=url)
        log.info("ready", roles=describe_roles(roles), store=store)

    def stopping(self, *, interrupted: bool) -> None:
        """Announce that the node was asked to stop, and by a Ctrl-C how to stop it at once."""
        log.info("stopping", **({"hint": END_AT_ONCE} if interrupted else {}))


def run_node(settings: Settings, plan: NodePlan, *, processes: int = 1, announcer: Announcer | None = None) -> int:
    """Run a node, or several that share a port, until a signal stops them, and return the exit code."""
    configure_logs(settings.log, settings.log_level)
    refuse_unsafe(settings, roles=plan.roles, local=plan.local)
    if processes == 1:
        if plan.listener is None and (listener := bind(settings, plan.roles)) is not None:
            listener.close()  # it only shows that the port is free, before the node joins the cluster
        return run_until_done(_main(settings, plan, announcer or Announcer()))
    load_apps(plan.apps)  # so that a mistake is reported once, before any process starts
    plan = replace(plan, listener=bind(settings, plan.roles))
    target = partial(_run_child, settings, plan)
    return Supervisor(target, processes, drain_seconds=settings.drain_seconds.total_seconds()).run()


def _run_child(settings: Settings, plan: NodePlan) -> int:
    """Run one of several processes, which the supervisor restarts when it ends; log a failure in one line."""
    try:
        return run_node(settings, plan)
    except HoraeError as exc:
        log.critical("node_failed", reason=str(exc))
        return 1


def run_until_done(main: Coroutine[Any, Any, int]) -> int:
    """Run the event loop until `main` ends, even if users' code stops the loop.

    `sys.exit` in a task that a handler has started stops the loop, and so does `loop.stop()`. Nothing is lost by that:
    the loop is started again and continues, and whoever awaits the task gets its exception.
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
                log.warning("event_loop_stopped", by=f"{type(exc).__name__}: {exc}", then="restarted")
        return node.result()


async def _main(settings: Settings, plan: NodePlan, announcer: Announcer) -> int:
    stop = StopRequest()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop))
        apps = load_apps(plan.apps)
        accept_task_logs(settings.log_level)
        settings = with_store_of(apps, settings)
        listener = plan.listener or bind(settings, plan.roles)
        url = None if listener is None else f"http://{settings.host}:{listener.getsockname()[1]}"
        has_api = "api" in plan.roles
        joining = partial(running_node, settings, plan, *apps, probes=None if has_api else listener)
        running = await join_with_retries(lambda: stack.enter_async_context(joining()), stop)
        if running is None:
            return 0
        if has_api and listener is not None:
            await stack.enter_async_context(serving(running.api, listener))
        _tune_garbage_collector()
        sys.setswitchinterval(SWITCH_SECONDS)
        announcer.ready(url=url, roles=plan.roles, store=without_password(settings.store))
        await _wait_for_stop(stop, running.node)
        announcer.stopping(interrupted=stop.interrupted)
    return 0


async def join_with_retries(
    join: Callable[[], Awaitable[T]], stop: asyncio.Event, *, within: float = START_SECONDS
) -> T | None:
    """Join, with retries while the store is unavailable; return None if `stop` is set before that.

    A node may start before its store does. After `within` seconds the last error is raised.
    """
    deadline, (wait, longest) = time.monotonic() + within, RETRY_SECONDS
    warned = False
    while not stop.is_set():
        try:
            return await join()
        except Unavailable as exc:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if not warned:
                log.warning("store_unavailable", reason=str(exc), gives_up_in_seconds=round(left))
                warned = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait * random.uniform(0.5, 1), left)):
                await stop.wait()
        wait = min(wait * 2, longest)
    return None


def _tune_garbage_collector() -> None:
    """Keep the garbage collector from delaying starts: freeze what exists now, and collect less often.

    A full collection of a node takes 20 ms. Runs leave no reference cycles, so it need not collect often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _wait_for_stop(stop: asyncio.Event, node: NodeService) -> None:
    """Wait until `stop` is set; raises what ended a duty of the node."""
    stopped = asyncio.create_task(stop.wait())
    failed = asyncio.create_task(node.failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if failed.done():
        failed.result()
    failed.cancel()
