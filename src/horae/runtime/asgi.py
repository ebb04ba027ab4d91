"""A node inside somebody else's ASGI application: mounted like any other, started and stopped with its host."""

import asyncio
import contextlib
import ipaddress
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.auth.guard import EVERYBODY, Guard, Principal
from horae.api.http.operation import Scope as Permission
from horae.api.http.problems import Forbidden, problem_of, problem_response
from horae.api.http.rate_limit import RateLimit
from horae.config import Settings, without_password
from horae.core.errors import HoraeError, NotFound, Unavailable
from horae.core.model import LOCAL
from horae.engine.node import NodeService, describe_roles
from horae.log_setup import configure_logs
from horae.runtime.wiring import NodePlan, Program, RunningNode, running_node

log = structlog.get_logger(__name__)

ENDINGS = (signal.SIGINT, signal.SIGTERM)


class Embedded:
    """An ASGI application with a node behind it.

    The node lives as long as `lifespan`, which belongs into the lifespan of the host: what is mounted has none of its
    own. Without it the node starts with the first request, and ends with the process.
    """

    def __init__(self, program: Program, settings: Callable[[], Settings], plan: NodePlan, *, trusting: bool) -> None:
        """`trusting` when the host lets in nobody but those who may do everything."""
        self._program = program
        self._settings = settings
        self._plan = plan
        self._trusting = trusting
        self._running: RunningNode | None = None
        self._starting: asyncio.Task[RunningNode] | None = None
        self._living = contextlib.AsyncExitStack()  # of a node that a request started

    @contextlib.asynccontextmanager
    async def lifespan(self, host: Any = None) -> AsyncIterator[None]:
        """The node from start to drain: `FastAPI(lifespan=horae.lifespan)`, or inside a lifespan of one's own."""
        async with self._node():
            yield

    async def stop(self) -> None:
        """End a node that a request started: what hosts without a lifespan can call when they end."""
        await self._living.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # served by itself, not mounted
            await self._live(receive, send)
        elif scope["type"] == "http":
            await (await self._answering(scope))(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    # --- requests

    async def _answering(self, scope: Scope) -> ASGIApp:
        """Who answers a request: the API, or the reason why not."""
        try:
            self._refuse_strangers(scope)
            if "api" not in self._plan.roles:
                raise NotFound("API here: this node has the roles", describe_roles(self._plan.roles))
            return (await self._started()).api
        except HoraeError as exc:
            return problem_response(problem_of(exc))

    def _refuse_strangers(self, scope: Scope) -> None:
        if self._trusting or self._settings().auth != "off" or _is_here(scope):
            return
        raise Forbidden(
            "without authentication Horae answers to this machine only: set HORAE_AUTH=jwt, or say"
            ' app.asgi(auth="host") when the application that it is mounted in lets in nobody else'
        )

    async def _started(self) -> RunningNode:
        if self._running is not None:
            return self._running
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="horae-start")
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except HoraeError as exc:
            raise Unavailable(f"Horae could not start: {exc}") from exc
        finally:
            if starting.done():
                self._starting = None

    async def _start(self) -> RunningNode:
        if self._plan.roles != {"api"}:
            log.warning(
                "started_by_a_request",
                roles=describe_roles(self._plan.roles),
                advice="add its lifespan to that of the application, so that it works from the start and ends in order",
            )
        await self._living.enter_async_context(self._node())
        assert self._running is not None
        return self._running

    # --- the node

    @contextlib.asynccontextmanager
    async def _node(self) -> AsyncIterator[None]:
        if not structlog.is_configured():
            configure_logs()
        settings = self._settings()
        guard = self._guard(settings)
        async with running_node(settings, self._plan, self._program, guard=guard) as running:
            log.info("ready", roles=describe_roles(self._plan.roles), store=without_password(settings.store))
            watching = asyncio.create_task(_tell_failure(running.node), name="horae-watch")
            self._running = running
            try:
                with _heeding_signals(running.services.close_streams):
                    yield
            finally:
                self._running = None
                watching.cancel()
                running.services.close_streams()

    def _guard(self, settings: Settings) -> Guard | None:
        """Who is let in without a token, as whom; None: nobody."""
        if not self._trusting and settings.auth != "off":
            return None
        limit = RateLimit(settings.rate_limit) if settings.rate_limit else None
        owner = self._program.owner
        return Guard(None, limit, everybody=EVERYBODY if owner == LOCAL else _acting_for(owner))

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol of ASGI."""
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._node())
            except HoraeError as exc:
                await send({"type": "lifespan.startup.failed", "message": str(exc)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _acting_for(owner: str) -> Principal:
    return Principal(owner=owner, subject=owner, scopes=frozenset({Permission.READ, Permission.WRITE}))


def _is_here(scope: Scope) -> bool:
    """Whether a request comes from this machine; what has no address, as in tests and behind sockets, does."""
    client = scope.get("client")
    try:
        return client is None or ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return True


@contextlib.contextmanager
def _heeding_signals(act: Callable[[], None]) -> Iterator[None]:
    """Do something first when the process is told to end.

    Servers wait for every answer to be complete before they end the lifespan, and a stream of events never is. Handlers
    that the server has set are called as before; where there are none, none are set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    theirs = {number: handler for number in ENDINGS if callable(handler := signal.getsignal(number))}

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        theirs[signal.Signals(number)](number, frame)

    for number in theirs:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, handler in theirs.items():
            if signal.getsignal(number) is heard:
                signal.signal(number, handler)


async def _tell_failure(node: NodeService) -> None:
    """A duty that ends by itself would end a process of ours; here it is told, and `/readyz` fails."""
    try:
        await node.failed()
    except Exception as exc:
        log.critical("node_failed", exc_info=exc)
