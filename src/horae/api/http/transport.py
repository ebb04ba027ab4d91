"""Transports of HTTP connections: how responses are written, and how slowly clients may read them."""

import asyncio
from typing import Any

MAX_BUFFERED = 65_536  # bytes kept until the end of an iteration of the event loop


class CoalescingTransport:
    """A transport that joins all writes of one iteration of the event loop into one.

    Sending is most of the cost of a response: it wakes up the receiver, which then often takes the processor. So a head
    is sent together with its body, and a client that waits for many responses wakes up once for several of them.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffered: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._buffered:
            self._loop.call_soon(self._flush)
        self._buffered.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:  # pass it on, so that the transport notices a slow receiver
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._buffered:
            data, self._buffered, self._size = self._buffered, [], 0
            self._transport.write(b"".join(data))


class WriteWatch:
    """Ends a connection whose client takes too little of what waits to be written to it."""

    def __init__(self, transport: CoalescingTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.since = 0.0  # when the client fell behind, by the clock of the event loop

    @property
    def running(self) -> bool:
        """Whether the client has not yet taken what was written."""
        return self._timer is not None

    @property
    def unsent(self) -> int:
        """How many bytes wait to be written, while the client is behind."""
        return self._transport.get_write_buffer_size() if self.running else 0

    def start(self, seconds: float, least: int) -> None:
        """Abort the connection unless its client takes at least so many bytes in every so many seconds."""
        self.stop()
        self.since = self._loop.time()
        self._wait(seconds, least)

    def stop(self) -> None:
        """Stop watching: the client has taken what was written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float, least: int) -> None:
        before = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(seconds, self._look, seconds, least, before)

    def _look(self, seconds: float, least: int, before: int) -> None:
        if before - self._transport.get_write_buffer_size() < least:
            self._transport.abort()
        else:
            self._wait(seconds, least)
