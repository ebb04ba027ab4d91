"""Serves the API of a node over HTTP, or the probes of a node without it."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Collection, Generator

import uvicorn

from horae.api.app import Api
from horae.api.http.protocol import LimitedConnection
from horae.config import Settings
from horae.core.errors import Misconfigured

BACKLOG = 2048  # connections that wait to be accepted


def bind(settings: Settings, roles: Collection[str]) -> socket.socket | None:
    """Listen for the API of a node with these roles, or for its probes; None if it has neither."""
    if "api" in roles:
        return _listen(settings.host, settings.port, "--port or HORAE_PORT")
    if settings.probe_port is not None:
        return _listen(settings.host, settings.probe_port, "HORAE_PROBE_PORT")
    return None


def _listen(host: str, port: int, option: str) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            reason = f"port {port} is in use, perhaps by another Horae; stop that one"
        else:
            reason = f"cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}"
        raise Misconfigured(f"{reason}, or choose another port with {option}") from exc


@contextlib.asynccontextmanager
async def serving(api: Api, listener: socket.socket) -> AsyncIterator[None]:
    """Serve requests until the end, then finish those that are in flight."""
    server = _Server(
        uvicorn.Config(
            api,
            http=LimitedConnection,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # nothing here needs the address of a client
            timeout_graceful_shutdown=3,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        yield
    finally:
        api.services.close_streams()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
