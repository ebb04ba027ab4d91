"""A proxy before DynamoDB and SQS that does to requests what the real services do and no emulator does.

Throttling of a request and of one statement, unprocessed items and keys, conflicts of transactions, indexes that lag
behind, tickets delivered twice, connections cut before a request arrives or after it took effect, slow answers and
internal errors. Which request is hit is drawn from a seed, or asked for (`next`), and every hit is counted.

Every node may have a link of its own, a port of the proxy, so that a fault can affect one node.
"""

import asyncio
import random
import threading
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from tests.engines.aws_answers import (
    PARTIAL,
    Answer,
    Deliveries,
    Exchange,
    Fault,
    LaggingIndexes,
    applies,
    before,
    internal_error,
    merged,
    nothing,
    split,
)

T = TypeVar("T")

SLOW_SECONDS = 2.0
LAG_SECONDS = 1.0
HOP_HEADERS = {"connection", "content-length", "content-encoding", "date", "server", "transfer-encoding", "x-amz-crc32"}


class AwsLink:
    """The way of one node to the services, with its faults."""

    def __init__(self, proxy: "AwsFaults") -> None:
        self._proxy = proxy
        self._next: deque[Fault] = deque()
        self._waiting: dict[Fault, Future[str]] = {}
        self.chances: dict[Fault, float] = {}  # how likely each fault is for a request that it may hit
        self.slow_seconds = SLOW_SECONDS
        self.url = ""
        self.fired: Counter[Fault] = Counter()
        self.requests: Counter[str] = Counter()  # by verb, of those that came

    def next(self, fault: Fault) -> "Future[str]":
        """Hit the next request that the fault may hit; the future tells its verb when that has happened."""
        done: Future[str] = Future()
        self._waiting[fault] = done
        self._next.append(fault)
        return done

    def heal(self) -> None:
        """End all faults."""
        self.chances = {}
        self._next.clear()

    def drawn(self, exchange: Exchange) -> Fault | None:
        """The fault that hits this request, if any."""
        for fault in self._next:
            if applies(fault, exchange):
                self._next.remove(fault)
                return fault
        for fault, chance in self.chances.items():
            if applies(fault, exchange) and self._proxy.rng.random() < chance:
                return fault
        return None

    def note(self, fault: Fault, verb: str) -> None:
        """Count a hit."""
        self.fired[fault] += 1
        if (waiting := self._waiting.pop(fault, None)) is not None:
            waiting.set_result(verb)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass a request on, unless a fault hits it."""
        exchange = Exchange.of(request.headers, await request.read())
        self.requests[exchange.verb] += 1
        fault = self.drawn(exchange)
        if fault is Fault.SLOW:
            self.note(fault, exchange.verb)
            await asyncio.sleep(self.slow_seconds)
        if fault is Fault.CUT_BEFORE:
            return self._cut(request, fault, exchange)
        if fault is not None and (refused := before(fault, exchange)) is not None:
            self.note(fault, exchange.verb)
            return _response(refused)
        whole = split(fault, exchange, self._proxy.rng)
        try:
            answer = await self._proxy.ask(request, whole.body) if whole.body or fault is None else nothing(fault)
        except aiohttp.ClientError:  # the server is down
            return _abort(request)
        if fault is Fault.CUT_AFTER and answer.ok:
            return self._cut(request, fault, exchange)
        changed = self._after(fault, whole, answer) if answer.ok else answer
        if fault in self._waiting:  # it made no difference to this request
            self._next.appendleft(fault)
        return _response(changed)

    def _after(self, fault: Fault | None, exchange: Exchange, answer: Answer) -> Answer:
        """What becomes of an answer to a request that took effect."""
        changed = answer
        if fault in PARTIAL:
            changed = merged(fault, exchange, answer)
        elif fault is Fault.ERROR_AFTER:
            changed = internal_error()
        elif fault is Fault.STALE_INDEX:
            changed = self._proxy.lagging.stale(exchange, answer)
        elif fault is Fault.DELIVERED_TWICE:
            changed = self._proxy.deliveries.again(exchange, answer)
        self._proxy.watch(exchange, answer)
        if fault is not None and changed is not answer:
            self.note(fault, exchange.verb)
        return changed

    def _cut(self, request: web.BaseRequest, fault: Fault, exchange: Exchange) -> web.Response:
        """End the connection; nobody receives the answer."""
        self.note(fault, exchange.verb)
        return _abort(request)


class AwsFaults:
    """The proxy, in a thread of its own; `upstream` is the address of the emulator."""

    def __init__(self, upstream: str, *, seed: int = 1, lag: float = LAG_SECONDS) -> None:
        self._upstream = upstream
        self.rng = random.Random(seed)
        self.lagging = LaggingIndexes(lag)
        self.deliveries = Deliveries()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aws faults", daemon=True)
        self._runners: list[web.ServerRunner] = []
        self._client: aiohttp.ClientSession | None = None

    def __enter__(self) -> "AwsFaults":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self) -> AwsLink:
        """Open one more way to the services."""
        link = AwsLink(self)
        self._call(self._open(link))
        return link

    def watch(self, exchange: Exchange, answer: Answer) -> None:
        """Remember what later faults repeat or hold back."""
        if applies(Fault.STALE_INDEX, exchange):
            self.lagging.watch(exchange, answer)
        elif applies(Fault.DELIVERED_TWICE, exchange):
            self.deliveries.watch(exchange, answer)

    async def ask(self, request: web.BaseRequest, body: bytes) -> Answer:
        """Send a request to the emulator."""
        if self._client is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._client = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
        url = f"{self._upstream}{request.rel_url}"
        async with self._client.request(request.method, url, data=body, headers=headers) as response:
            return Answer(response.status, await response.read(), _kept(response.headers))

    async def _open(self, link: AwsLink) -> None:
        runner = web.ServerRunner(web.Server(link.serve, access_log=None), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._runners.append(runner)
        link.url = f"http://127.0.0.1:{site.port}"

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        if self._client is not None:
            await self._client.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_HEADERS}


def _abort(request: web.BaseRequest) -> web.Response:
    """End the connection; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
