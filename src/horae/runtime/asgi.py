"""Runs a node inside another ASGI application, which mounts it, and starts and stops it with its lifespan."""

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
from horae.api.http.origin import refuse_foreign_host
from horae.api.http.problems import Forbidden, problem_of, problem_response
from horae.api.http.rate_limit import RateLimit
from horae.config import Settings, without_password
from horae.core.errors import HoraeError, NotFound, Unavailable
from horae.core.model import LOCAL
from horae.engine.node import NodeService, describe_roles
from horae.log_setup import configure_logs
from horae.runtime.plan import NodePlan, Program
from horae.runtime.stop_signals import STOP_SIGNALS
from horae.runtime.wiring import RunningNode, running_node

log = structlog.get_logger(__name__)


class Embedded:
    """An ASGI application that runs a node.

    The host has to enter `lifespan` in its own lifespan, because a mounted application gets no lifespan events. Without
    that the node starts with the first request and ends with the process.
    """

    def __init__(self, program: Program, settings: Callable[[], Settings], plan: NodePlan, *, trusting: bool) -> None:
        """Take the users' code; `trusting` if the host authenticates, and everyone it lets in may do everything."""
        self._program = program
        self._settings = settings
        self._plan = plan
        self._trusting = trusting
        self._running: RunningNode | None = None
        self._starting: asyncio.Task[RunningNode] | None = None
        self._living = contextlib.AsyncExitStack()  # holds a node that a request started

    @contextlib.asynccontextmanager
    async def lifespan(self, host: Any = None) -> AsyncIterator[None]:
        """Run the node: `FastAPI(lifespan=horae.lifespan)`, or inside a lifespan of your own."""
        async with self._node():
            yield

    async def stop(self) -> None:
        """Stop a node that a request started; for hosts without a lifespan."""
        await self._living.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # served on its own, not mounted
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await (await self._responder(scope))(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    # --- requests

    async def _responder(self, scope: Scope) -> ASGIApp:
        """Return the API, or a response that explains why it does not answer this request."""
        try:
            self._refuse_remote(scope)
            if "api" not in self._plan.roles:
                raise NotFound("API here: this node has the roles", describe_roles(self._plan.roles))
            return (await self._started()).api
        except HoraeError as exc:
            return problem_response(problem_of(exc))

    def _refuse_remote(self, scope: Scope) -> None:
        """Raise Forbidden where nobody authenticates, for other machines and for names that only lead to this one."""
        if self._trusting or self._settings().auth != "off":
            return
        address = _address(scope)
        if address is None:
            return
        if not address.is_loopback:
            raise Forbidden(
                "without authentication Horae answers this machine only: set HORAE_AUTH=jwt, or use"
                ' app.asgi(auth="host") if the application that mounts it authenticates its users'
            )
        refuse_foreign_host(scope)

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
                advice="enter its lifespan in the lifespan of the application, so that it starts and stops with it",
            )
        await self._living.enter_async_context(self._node())
        assert self._running is not None
        return self._running

    # --- the node

    @contextlib.asynccontextmanager
    async def _node(self) -> AsyncIterator[None]:
        settings = self._settings()
        if not structlog.is_configured():
            configure_logs(settings.log, settings.log_level)
        guard = self._guard(settings)
        async with running_node(settings, self._plan, self._program, guard=guard) as running:
            log.info("ready", roles=describe_roles(self._plan.roles), store=without_password(settings.store))
            watching = asyncio.create_task(_log_failure(running.node), name="horae-watch")
            self._running = running
            try:
                with _calling_on_stop(running.services.close_streams):
                    yield
            finally:
                self._running = None
                watching.cancel()
                running.services.close_streams()

    def _guard(self, settings: Settings) -> Guard | None:
        """Return a guard that admits everybody without a token, or None if tokens are checked."""
        if not self._trusting and settings.auth != "off":
            return None
        limit = RateLimit(settings.rate_limit) if settings.rate_limit else None
        owner = self._program.owner
        return Guard(None, limit, everybody=EVERYBODY if owner == LOCAL else _acting_for(owner))

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Run the node for the lifespan protocol of ASGI."""
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


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a request comes from; None without one, as in tests and behind sockets."""
    client = scope.get("client")
    try:
        return None if client is None else ipaddress.ip_address(client[0])
    except ValueError:
        return None


@contextlib.contextmanager
def _calling_on_stop(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` first when a signal stops the process.

    Servers wait until every response is complete before they end the lifespan, and a stream of events never completes.
    The handlers of the server are called as before; where it has none, none are set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: handler for number in STOP_SIGNALS if callable(handler := signal.getsignal(number))}

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        handlers[signal.Signals(number)](number, frame)

    for number in handlers:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


async def _log_failure(node: NodeService) -> None:
    """Log a duty that ends by itself. A process of ours would end with it; here only `/readyz` fails."""
    try:
        await node.failed()
    except Exception as exc:
        log.critical("node_failed", exc_info=exc)
