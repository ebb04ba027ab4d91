"""HTTP connections with limits: nobody fills memory or the log, or holds connections that serve no request."""

import asyncio
import logging
import resource
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from horae.api.http.problems import RETRY_AFTER_SECONDS, Problem, new_problem

MAX_URL = 16_384  # bytes; cursors and filters are much shorter
MAX_HEADERS = 100
MAX_HEADER_BYTES = 65_536  # of all headers together
HEAD_SECONDS = 20.0  # from the first byte of a request, or the beginning of the connection, to the end of its headers
BODY_SECONDS = 300.0
ANSWER_SECONDS = 300.0  # in which a receiver must take what it was sent
MAX_HELD = 65_536  # bytes that are kept back until the end of a turn
_CODES = {
    400: "malformed",
    408: "request_timeout",
    414: "uri_too_long",
    431: "headers_too_large",
    503: "unavailable",
}
_LOG = logging.getLogger("uvicorn.error.requests")
_LOG.setLevel(logging.ERROR)  # whoever sends nonsense is told; the log is not for them to fill

Deadline = tuple[float, Callable[[], None]]  # seconds, and what happens after them


class Together:
    """A transport that sends at the end of a turn of the event loop: a head with its body, and answers right in a row.

    To send is most of the cost of an answer: it wakes up whoever waits for it, who often takes the processor then.
    Whoever waits for many answers wakes up once for those that come in a row.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > MAX_HELD:  # the transport tells when its receiver is too slow
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(held))


def connections_allowed(files: int) -> int:
    """How many connections leave a process that may open so many files enough of them for all else that it does."""
    return 10_000 if files == resource.RLIM_INFINITY else min(max(files - 256, files // 2), 10_000)


MAX_CONNECTIONS = connections_allowed(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class LimitedConnection(HttpToolsProtocol):
    """Refuses requests whose head is too large or too slow, and ends those whose body or answer never ends.

    When there are too many connections, the one that has waited longest for a request makes room for a new one.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.logger = _LOG
        self._free_since = 0.0  # of requests, by the clock of the loop
        self._untaken: asyncio.TimerHandle | None = None  # runs while the receiver takes nothing
        self._refusal: Problem | None = None
        self._awaited: Deadline | None = None  # what shall come, and how soon
        self._timed: Deadline | None = None  # that for which the timer runs
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # received of a head that is not complete; None outside of one

    # --- the life of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = Together(transport, self.loop)  # type: ignore[assignment]
        self._free_since = self.loop.time()
        self._awaited = (HEAD_SECONDS, self._head_too_slow)
        self._set_timer()
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return  # what comes after a refusal is not read
        received = self._head_bytes
        super().data_received(data)
        if self._refusal is None and self._awaited is not self._timed:
            self._set_timer()
        if self._refusal is None and received is not None and self._head_bytes is not None:
            self._head_bytes = received + len(data)
            if self._head_bytes > MAX_URL + MAX_HEADER_BYTES:
                self._refuse(431, _TOO_MANY_HEADERS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._free_since = self.loop.time()
        super().on_response_complete()

    # --- the parser tells

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._awaited = (HEAD_SECONDS, self._head_too_slow)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL:
            raise self._refused(414, f"the address is longer than {MAX_URL} bytes")

    def on_headers_complete(self) -> None:
        size = sum(map(len, chain.from_iterable(self.headers)))
        if len(self.headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise self._refused(431, _TOO_MANY_HEADERS)
        self._head_bytes = None
        self._awaited = (BODY_SECONDS, self._body_too_slow)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._awaited = None
        super().on_message_complete()

    # --- making room

    @property
    def _is_free(self) -> bool:
        """Whether no request is being answered, and this was not refused before."""
        return self._refusal is None and (self.cycle is None or self.cycle.response_complete)

    def _make_room(self) -> None:
        others = (other for other in self.connections if isinstance(other, LimitedConnection) and other is not self)
        longest = min((other for other in others if other._is_free), key=lambda other: other._free_since, default=None)
        if longest is None:
            self._refuse(503, "there are too many connections; try again later")
        elif longest._untaken is None:
            longest._refuse(408, "the connection waited for a request, and others needed its place")
        else:
            longest.transport.abort()

    # --- refusing

    def send_400_response(self, msg: str) -> None:
        """Called for whatever the parser refuses, our own refusals among them."""
        if self._refusal is None:
            self._refused(400, "this is not HTTP as Horae understands it")
        self._answer()

    def _refused(self, status: int, detail: str) -> ValueError:
        """Remember why; raised in a callback, the exception makes the parser stop."""
        self._refusal = new_problem(status, _CODES[status], detail)
        return ValueError(detail)

    def _refuse(self, status: int, detail: str) -> None:
        self._refused(status, detail)
        self._answer()

    def _answer(self) -> None:
        assert self._refusal is not None
        self._stop_timer()
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            self.transport.close()  # nobody is there, or still waits for another answer
            return
        status, body = self._refusal.status, msgspec.json.encode(self._refusal)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        )
        head += f"retry-after: {RETRY_AFTER_SECONDS}\r\n\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else "\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    # --- taking too long

    def _head_too_slow(self) -> None:
        self._refuse(408, f"the request did not come within {HEAD_SECONDS:g} s")

    def _body_too_slow(self) -> None:
        self.transport.close()  # the handler learns that the sender is gone

    def _set_timer(self) -> None:
        """Have the timer run for what is awaited now; a request that came in one piece never needs one."""
        self._stop_timer()
        self._timed = self._awaited
        if self._timed is not None:
            self._timer = self.loop.call_later(*self._timed)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_TOO_MANY_HEADERS = f"there may be {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes together"
