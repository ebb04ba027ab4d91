"""What a Lambda environment keeps between invocations: the event loop, connections, the users' code.

Between invocations it is frozen, for seconds or hours, and nothing in it runs. So it is a node of the cluster only
during an invocation: it joins at the beginning under a new id, leaves at the end, and holds nothing in between.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import structlog
import uvloop

from horae.adapters import sync_clock
from horae.config import Settings, load_settings, parse_names
from horae.core.effects import unregister_node
from horae.core.errors import Unavailable
from horae.engine.cluster.heartbeat import Heartbeat
from horae.engine.cluster.lease import Lease
from horae.engine.execution.executor import Executor
from horae.log_setup import accept_task_logs, configure_logs
from horae.loop import Loop
from horae.runtime.applications import load_apps, with_store_of
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import Parts, bound, declare, executor_of, heartbeat_of, opened_parts, services_of

if TYPE_CHECKING:
    from horae.aws.planner import PlannerDuties

log = structlog.get_logger(__name__)

APPS = "HORAE_APPS"  # MODULE:APP of the users' tasks, several with commas
CONCURRENCY = 100  # attempts at once; an event has usually ten messages
OFFERED_WITHIN = timedelta(seconds=2)  # tickets of what was written: what waits in a frozen process is not sent

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmParts:
    """What the first invocation opens."""

    parts: Parts
    executor: Executor | None  # of a worker


class Environment:
    """The parts of a node that outlive an invocation."""

    _of_process: ClassVar[dict[str, "Environment"]] = {}  # by role; Lambda gives each function processes of its own

    def __init__(self, settings: Settings, plan: NodePlan) -> None:
        self._settings = settings
        self._plan = plan
        self._loop = uvloop.new_event_loop()
        self._stack = AsyncExitStack()
        self._opened: WarmParts | None = None
        self.duties: PlannerDuties | None = None  # of a planner

    @classmethod
    def of_this_process(cls, *, role: str) -> "Environment":
        """Return the environment of this process, which the first invocation makes."""
        if role not in cls._of_process:
            settings = load_settings()
            configure_logs(settings.log, settings.log_level)
            apps = parse_names(os.environ.get(APPS, ""))
            plan = NodePlan(roles=frozenset({role}), apps=apps, concurrency=CONCURRENCY)
            cls._of_process[role] = cls(settings, plan)
        return cls._of_process[role]

    @classmethod
    def close_all(cls) -> None:
        """Close what this process has opened; Lambda never asks for it."""
        while cls._of_process:
            cls._of_process.popitem()[1].close()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run one invocation on the event loop that all invocations share."""
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(main)

    def close(self) -> None:
        """Close every connection and end what runs."""
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        asyncio.set_event_loop(None)

    async def opened(self) -> WarmParts:
        """Return what the first invocation opens, with its clock set by the store's: who was frozen is behind."""
        if self._opened is None:
            self._opened = await self._open()
        else:
            await sync_clock(self._opened.parts.clock, self._opened.parts.store, readings=1)
        return self._opened

    async def _open(self) -> WarmParts:
        async with AsyncExitStack() as stack:
            apps = load_apps(self._plan.apps)
            accept_task_logs(self._settings.log_level)
            settings = with_store_of(apps, self._settings)
            parts = await opened_parts(stack, settings, self._plan, apps, patience=OFFERED_WITHIN)
            services = services_of(parts, ready=lambda: True)
            stack.push_async_callback(services.usage.close)
            executor = None
            if "worker" in self._plan.roles:
                executor = executor_of(parts)
                connection = stack.enter_context(bound(apps, services))
                for app in apps:
                    await app.hooks.start_worker()
                    stack.push_async_callback(app.hooks.stop_worker)
                    await declare(app, connection)
                stack.push_async_callback(executor.close)
            self._stack = stack.pop_all()
        return WarmParts(parts=parts, executor=executor)


class Membership:
    """One invocation as a node of the cluster.

    The heartbeat shares the event loop and the connections of the invocation: a task that blocks the loop for
    `dead_after` loses its lease.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.lease = Lease(parts.clock, parts.timing)
        self.running: Callable[[], int] = int  # attempts under way, as heartbeats tell
        self.after_beat: Callable[[], None] = lambda: None
        self.heartbeat: Heartbeat = heartbeat_of(parts, parts.store, self.lease, running=lambda: self.running())

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Join, send heartbeats, and leave at the end."""
        await self.heartbeat.join()
        loop = Loop("heartbeat", self._beat, self._parts.clock, idle=self._parts.timing.heartbeat)
        beating = asyncio.create_task(loop.run(), name="heartbeat")
        try:
            yield
        finally:
            loop.stop()
            await asyncio.gather(beating, return_exceptions=True)
            try:
                await self._parts.store.apply([unregister_node(self.heartbeat.node)])
            except Unavailable as exc:
                log.warning("unregister_failed", reason=str(exc))  # others will miss its heartbeats

    async def _beat(self) -> datetime | None:
        again = await self.heartbeat.tick()
        self.after_beat()
        return again
