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
            if not self._transport.is_closing():  # a transport of uvloop raises when it was closed
                self._transport.write(b"".join(data))


class WriteWatch:
    """Ends a connection whose client takes too little of what waits to be written to it."""

    def __init__(self, transport: CoalescingTransport, loop: asyncio.AbstractEventLoop, behind: "Behind") -> None:
        self._transport = transport
        self._loop = loop
        self._behind = behind
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether the client has not yet taken what was written."""
        return self._timer is not None

    def start(self, seconds: float, least: int) -> None:
        """Abort the connection unless its client takes at least so many bytes in every so many seconds."""
        self.stop()
        self._behind.add(self, self._transport.get_write_buffer_size())
        self._wait(seconds, least)

    def stop(self) -> None:
        """Stop watching: the client has taken what was written, or the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._behind.remove(self)

    def abort(self) -> None:
        """Close the connection, and drop what waits to be written."""
        self.stop()
        self._transport.abort()

    def _wait(self, seconds: float, least: int) -> None:
        before = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(seconds, self._look, seconds, least, before)

    def _look(self, seconds: float, least: int, before: int) -> None:
        if before - self._transport.get_write_buffer_size() < least:
            self.abort()
        else:
            self._wait(seconds, least)


class Behind:
    """The connections whose clients are behind with reading, and how much waited for them when they fell behind."""

    def __init__(self) -> None:
        self._unsent: dict[WriteWatch, int] = {}  # in the order in which they fell behind
        self._total = 0

    def add(self, watch: WriteWatch, unsent: int) -> None:
        """Add a connection with so many unsent bytes, which only become fewer while its client is behind."""
        self._unsent[watch] = unsent
        self._total += unsent

    def remove(self, watch: WriteWatch) -> None:
        """Remove a connection that is no longer behind."""
        self._total -= self._unsent.pop(watch)

    def abort_longest(self) -> bool:
        """Abort the connection that has been behind longest; False when there is none."""
        longest = next(iter(self._unsent), None)
        if longest is not None:
            longest.abort()
        return longest is not None

    def shed(self, most: int) -> None:
        """Abort the connections that have been behind longest until at most so many bytes are unsent."""
        while self._total > most:
            self.abort_longest()
