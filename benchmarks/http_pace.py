"""Sends requests at a given rate, whether earlier ones were answered or not."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle

from benchmarks.http_requests import CLIENT_SECONDS, Answers, Ask, Figures, Target, figures_of

LOOK_SECONDS = 0.001  # between looks at what is to be sent


async def at_rate(target: Target, asks: Sequence[Ask], rate: int, seconds: int, *, connections: int) -> Figures:
    """Send requests at evenly spread instants, whether earlier ones were answered or not."""
    pacer = Pacer([target.request(ask) for ask in asks], rate, rate * seconds)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: PacedConnection(pacer), target.host, target.port)
    began = time.perf_counter()
    async with asyncio.timeout(CLIENT_SECONDS):
        await pacer.run()
    return figures_of(pacer.waits, pacer.errors, time.perf_counter() - began)


class Pacer:
    """Sends requests when they are due, on whatever connection is free.

    It shares the processors with the server, so it has no task and no timer for each request: it looks once in a
    millisecond at what is due.
    """

    def __init__(self, requests: Sequence[bytes], rate: int, count: int) -> None:
        self._requests = cycle(requests)
        self._rate = rate
        self._count = count
        self._due = 0
        self._waiting: deque[float] = deque()  # the instants of requests that no connection was free for
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self.free: deque[PacedConnection] = deque()
        self.waits: list[float] = []
        self.errors = 0

    async def run(self) -> None:
        """Send all requests and wait for their answers."""
        self._begin = time.perf_counter()
        self._look()
        await self._end
        for connection in self.free:
            connection.close()

    def _look(self) -> None:
        due = min(int((time.perf_counter() - self._begin) * self._rate) + 1, self._count)
        self._waiting.extend(self._begin + number / self._rate for number in range(self._due, due))
        self._due = due
        while self.free and self._waiting:
            self._send(self.free.popleft())  # in turn, so that the server finds none of them idle and closes it
        if self._due < self._count:
            self._loop.call_later(LOOK_SECONDS, self._look)

    def _send(self, connection: "PacedConnection") -> None:
        connection.send(next(self._requests), self._waiting.popleft())

    def answered(self, connection: "PacedConnection", status: int) -> None:
        self.waits.append(time.perf_counter() - connection.due_at)
        self.errors += status >= 400
        if self._waiting:
            self._send(connection)
        else:
            self.free.append(connection)
        if len(self.waits) == self._count:
            self._end.set_result(None)

    def lost(self) -> None:
        if not self._end.done():
            self._end.set_exception(ConnectionError("the server closed the connection"))


class PacedConnection(Answers):
    """A connection of a pacer."""

    def __init__(self, pacer: Pacer) -> None:
        super().__init__()
        self._pacer = pacer
        self.due_at = 0.0  # when the request that is under way should have been sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pacer.free.append(self)

    def send(self, request: bytes, due_at: float) -> None:
        self.due_at = due_at
        self._transport.write(request)

    def answered(self, status: int, body: bytes) -> None:
        self._pacer.answered(self, status)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pacer.lost()
