"""Serves the API on a real port in the test's event loop, for streams, which an in-process transport would buffer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn

from horae.api.app import create_app
from horae.api.auth.guard import Guard, Principal
from horae.api.dispatch.context import Services
from horae.api.http.admission import Admission
from horae.api.http.operation import Scope
from horae.api.http.problems import Unauthorized
from tests.live import free_port


class ByName(Guard):
    """Uses the token itself as the owner; `root` is an administrator."""

    def __init__(self, expires_at: Callable[[], float | None] = lambda: None) -> None:
        super().__init__()
        self._expires_at = expires_at

    async def admit(self, authorization: list[str], scope: Scope) -> Principal:
        if not authorization:
            raise Unauthorized("say who you are")
        name = authorization[0].removeprefix("Bearer ")
        scopes = frozenset(Scope) if name == "root" else frozenset({Scope.READ, Scope.WRITE})
        return Principal(owner=name, subject=name, scopes=scopes, expires_at=self._expires_at())


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: its URL, and how to stop it."""

    url: str
    server: uvicorn.Server
    serving: "asyncio.Task[None]"
    services: Services

    async def stop(self) -> None:
        """Stop like a node: streams end first."""
        self.services.close_streams()
        self.server.should_exit = True
        await asyncio.wait([self.serving])


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Leave the signal handlers of the test process alone."""


@asynccontextmanager
async def served(
    services: Services, guard: Guard, *, port: int | None = None, admission: Admission | None = None
) -> AsyncIterator[Served]:
    port = port or free_port()
    app = create_app(services, guard=guard, admission=admission)
    config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=3)
    server = _Server(config)
    serving = asyncio.create_task(server._serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.005)
    here = Served(f"http://127.0.0.1:{port}", server, serving, services)
    try:
        yield here
    finally:
        await here.stop()
