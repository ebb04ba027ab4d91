"""Requests to a server under load, and connections that know only the HTTP that our server uses."""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, cast

ANSWER_SECONDS = 120.0  # that one answer may take
CLIENT_SECONDS = 300.0  # that clients may take altogether

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and a valid token."""

    host: str
    port: int
    token: str
    pids: Sequence[int]  # the server's, and that of its database where it is on this machine

    def request(self, ask: Ask) -> bytes:
        """Encode a request."""
        head = (
            f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\n"
            f"Content-Type: {ask.kind}\r\nContent-Length: {len(ask.body)}\r\n\r\n"
        )
        return head.encode() + ask.body


class Answers(asyncio.Protocol, ABC):
    """Parses the answers on one connection; knows only the HTTP that our server uses."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received = data = self._received + data if self._received else data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        place = data.index(b"content-length: ", 0, end) + 16
        if len(data) >= end + int(data[place : data.index(b"\r", place)]):
            self._received = b""
            self.answered(int(data[9:12]), data[end:])

    @abstractmethod
    def answered(self, status: int, body: bytes) -> None:
        """Handle a complete answer."""


class Connection(Answers):
    """A connection with one awaited request at a time."""

    _answer: asyncio.Future[tuple[int, bytes]] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def answered(self, status: int, body: bytes) -> None:
        assert self._answer is not None
        self._answer.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))


async def connect(target: Target) -> Connection:
    """Open a connection."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, target.host, target.port)
    return connection


async def answer_to(target: Target, ask: Ask) -> Any:
    """Return the answer to one request, which must succeed."""
    async with asyncio.timeout(ANSWER_SECONDS):
        connection = await connect(target)
        status, body = await connection.ask(target.request(ask))
        connection.close()
    if status != 200:
        raise RuntimeError(f"{ask.path} answered {status}: {body[:500]!r}")
    return json.loads(body)


async def ask_in_turn(
    target: Target,
    asks: Sequence[Ask],
    connections: int,
    go_on: Callable[[int], bool],
    is_good: Callable[[bytes], bool] = lambda body: True,
) -> Figures:
    """Send one request after another on each connection, while `go_on` is true for the next number."""
    numbered = enumerate(cycle([target.request(ask) for ask in asks]))
    waits: list[float] = []
    errors = 0

    async def client() -> None:
        nonlocal errors
        connection = await connect(target)
        for number, request in numbered:
            if not go_on(number):
                break
            began = time.perf_counter()
            status, body = await connection.ask(request)
            waits.append(time.perf_counter() - began)
            errors += status >= 400 or not is_good(body)
        connection.close()

    began = time.perf_counter()
    async with asyncio.timeout(CLIENT_SECONDS):
        await asyncio.gather(*(client() for _ in range(connections)))
    return figures_of(waits, errors, time.perf_counter() - began)


def figures_of(waits: list[float], errors: int, seconds: float) -> Figures:
    """Return the rate and the response times of requests that took so many seconds altogether."""
    waits.sort()
    return {
        "requests": len(waits),
        "per_s": round(len(waits) / seconds),
        "errors": errors,
        "p50_ms": round(waits[len(waits) // 2] * 1000, 2),
        "p99_ms": round(waits[len(waits) * 99 // 100] * 1000, 2),
        "max_ms": round(waits[-1] * 1000, 2),
    }
