"""The HTTP protocol with limits on sizes, times and connections, so that clients cannot exhaust the server."""

import asyncio
import logging
import resource
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from horae.api.http.problems import RETRY_AFTER_SECONDS, Problem, new_problem
from horae.api.http.transport import Behind, CoalescingTransport, WriteWatch

MAX_URL = 16_384  # bytes; cursors and filters are much shorter
MAX_HEADERS = 100
MAX_HEADER_BYTES = 65_536  # of all headers together
HEAD_SECONDS = 20.0  # from the first byte of a request, or the start of the connection, to the end of the headers
BODY_SECONDS = 300.0
WRITE_SECONDS = 20.0  # in which a client that is behind must take at least LEAST_TAKEN bytes of what it was sent
LEAST_TAKEN = 65_536
MAX_UNSENT = 256 * 1024 * 1024  # bytes that wait to be written, of all connections whose clients are behind
MAX_PIPELINED = 16  # requests of a connection that wait for their turn; what follows them is not parsed yet
MAX_UNPARSED = 1024 * 1024  # bytes of it
RESERVED = 32  # connections beyond MAX_CONNECTIONS, which get answers to PROBES only
PROBES = frozenset({b"/healthz", b"/readyz", b"/metrics"})
_CODES = {
    400: "malformed",
    408: "request_timeout",
    414: "uri_too_long",
    431: "headers_too_large",
    503: "unavailable",
}
END_OF_HEAD = b"\n\r\n"
_LOG = logging.getLogger("uvicorn.error.requests")
_LOG.setLevel(logging.ERROR)  # clients see their own mistakes and must not fill the log

Deadline = tuple[float, Callable[[], None]]  # seconds, and what to call after them


def connections_allowed(files: int) -> int:
    """Return how many connections a process may hold if it may open so many files, some of which it needs otherwise."""
    return 10_000 if files == resource.RLIM_INFINITY else min(max(files - 256, files // 2), 10_000)


MAX_CONNECTIONS = connections_allowed(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


BEHIND = Behind()  # of this process


class LimitedConnection(HttpToolsProtocol):
    """Refuses requests whose head is too large or too slow, and aborts those whose body or response takes too long.

    When there are too many connections, the one that has been idle longest is closed to make room for a new one, or
    the one whose client has been behind longest with reading. When all are at work, a new one may ask for PROBES only.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.logger = _LOG
        self._idle_since = 0.0  # by the clock of the event loop
        self._write_watch: WriteWatch
        self._probes_only = False
        self._answered: RequestResponseCycle | None = None  # the request that is answered now, or was last
        self._unparsed = bytearray()  # what follows the requests that wait for their turn
        self._refusal: Problem | None = None
        self._deadline: Deadline | None = None  # for what must arrive next
        self._timed: Deadline | None = None  # the deadline that the timer runs for
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # received of an incomplete head; None after it

    # --- callbacks of the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        coalescing = CoalescingTransport(transport, self.loop)
        self.transport = coalescing  # type: ignore[assignment]
        self._write_watch = WriteWatch(coalescing, self.loop, BEHIND)
        self._idle_since = self.loop.time()
        self._deadline = (HEAD_SECONDS, self._head_too_slow)
        self._set_timer()
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._write_watch.stop()
        self._unparsed.clear()
        self.pipeline.clear()
        if self._answered is not None and self._answered is not self.cycle:  # uvicorn tells only the latest request
            self._answered.disconnected = not self._answered.response_complete
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return  # ignore what follows a refused request
        if self._unparsed:
            self._unparsed += data
            self._wait_for_turns()
        elif data.count(END_OF_HEAD) <= MAX_PIPELINED and len(self.pipeline) < MAX_PIPELINED:
            self._parse(data)
        else:
            self._unparsed += data
            self._parse_more()

    def _parse(self, data: bytes) -> None:
        received = self._head_bytes
        super().data_received(data)
        if self._refusal is None and self._deadline is not self._timed:
            self._set_timer()
        if self._refusal is None and received is not None and self._head_bytes is not None:
            self._head_bytes = received + len(data)
            if self._head_bytes > MAX_URL + MAX_HEADER_BYTES:
                self._refuse(431, _TOO_MANY_HEADERS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_watch.start(WRITE_SECONDS, LEAST_TAKEN)
        BEHIND.shed(MAX_UNSENT)

    def resume_writing(self) -> None:
        self._write_watch.stop()
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self._unparsed:
            self.flow.pause_reading()
            self.loop.call_soon(self._parse_more)

    # --- pipelining

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _parse_more(self) -> None:
        """Parse what is left, a few requests at a time, until enough of them wait for their turn."""
        while self._unparsed and len(self.pipeline) < MAX_PIPELINED and self._refusal is None:
            if self.transport.is_closing():
                return
            size = _size_of_requests(self._unparsed, MAX_PIPELINED - len(self.pipeline))
            piece = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            self._parse(piece)
        if self._unparsed:
            self._wait_for_turns()

    def _wait_for_turns(self) -> None:
        """Read nothing more while requests wait, and do not blame the client for what it could not send meanwhile."""
        self._stop_timer()
        self._timed = None
        self.flow.pause_reading()
        if len(self._unparsed) > MAX_UNPARSED:  # a response in progress resumes the reading, to see the client leave
            self.transport.abort()

    # --- callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._deadline = (HEAD_SECONDS, self._head_too_slow)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL:
            raise self._refused(414, f"the URL is longer than {MAX_URL} bytes")

    def on_headers_complete(self) -> None:
        size = sum(map(len, chain.from_iterable(self.headers)))
        if len(self.headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise self._refused(431, _TOO_MANY_HEADERS)
        if len(self.pipeline) > MAX_PIPELINED:
            raise self._refused(400, f"at most {MAX_PIPELINED} requests may wait for the responses to earlier ones")
        if self._probes_only and self.url.partition(b"?")[0] not in PROBES:
            raise self._refused(503, "there are too many connections; retry later")
        self._head_bytes = None
        self._deadline = (BODY_SECONDS, self._body_too_slow)
        super().on_headers_complete()
        if self._probes_only:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._deadline = None
        super().on_message_complete()

    # --- making room

    @property
    def _is_idle(self) -> bool:
        """Whether no request is in progress, and none was refused."""
        return self._refusal is None and (self.cycle is None or self.cycle.response_complete)

    def _make_room(self) -> None:
        others = (other for other in self.connections if isinstance(other, LimitedConnection) and other is not self)
        idle = [other for other in others if other._is_idle and not other._write_watch.running]
        if idle:
            longest = min(idle, key=lambda other: other._idle_since)
            longest._refuse(408, "the connection was idle, and others needed its place")
        elif not BEHIND.abort_longest():
            if len(self.connections) <= MAX_CONNECTIONS + RESERVED:
                self._probes_only = True
            else:
                self._refuse(503, "there are too many connections; retry later")

    # --- refusing

    def send_400_response(self, msg: str) -> None:
        """Handle what the parser rejects, and our own refusals, which reach it as exceptions."""
        if self._refusal is None:
            self._refused(400, "the request is not valid HTTP/1.1")
        self._send_refusal()

    def _refused(self, status: int, detail: str) -> ValueError:
        """Store the problem and return an exception, which a callback raises to stop the parser."""
        self._refusal = new_problem(status, _CODES[status], detail)
        return ValueError(detail)

    def _refuse(self, status: int, detail: str) -> None:
        self._refused(status, detail)
        self._send_refusal()

    def _send_refusal(self) -> None:
        assert self._refusal is not None
        self._stop_timer()
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self.transport.close()  # the client is gone, or an earlier response is not complete
            return
        status, body = self._refusal.status, msgspec.json.encode(self._refusal)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        )
        head += f"retry-after: {RETRY_AFTER_SECONDS}\r\n\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else "\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    # --- deadlines

    def _head_too_slow(self) -> None:
        self._refuse(408, f"the request did not arrive within {HEAD_SECONDS:g} s")

    def _body_too_slow(self) -> None:
        self.transport.close()  # the handler sees a disconnect

    def _set_timer(self) -> None:
        """Run the timer for the current deadline; a request that arrives in one piece has none by now."""
        self._stop_timer()
        self._timed = self._deadline
        if self._timed is not None:
            self._timer = self.loop.call_later(*self._timed)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size_of_requests(data: bytearray, count: int) -> int:
    """Return the size of the beginning of some input that has at most so many ends of heads."""
    end = 0
    for _ in range(count):
        found = data.find(END_OF_HEAD, end)
        if found < 0:
            return len(data)
        end = found + len(END_OF_HEAD)
    return end


_TOO_MANY_HEADERS = f"at most {MAX_HEADERS} headers with {MAX_HEADER_BYTES} bytes in total are allowed"
