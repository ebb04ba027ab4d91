"""A pooler before PostgreSQL that gives each transaction another connection, as PgBouncer does in transaction mode.

It rotates on purpose: a client gets the connection that was used longest ago, so what it keeps in a session is gone.
"""

import asyncio
import struct
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field

SSL_REQUEST, CANCEL_REQUEST = 80877103, 80877102
CHUNK = 1 << 16
ENDS_WITH_READY = (b"S", b"Q")  # Sync and a simple query: each is answered with one ReadyForQuery
IDLE = b"I"  # the status of ReadyForQuery outside of a transaction


@dataclass(eq=False, slots=True)
class _Upstream:
    """A connection to the server, which clients take turns to use."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes  # from the end of authentication to the first ReadyForQuery


@dataclass(slots=True)
class _Lot:
    """The connections that were opened with one startup message: of one user, database and settings."""

    startup: bytes
    free: deque[_Upstream] = field(default_factory=deque)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))


class Pooler:
    """The pooler, in its own thread; `upstream` is the socket of the server."""

    def __init__(self, upstream: str, *, size: int) -> None:
        self._upstream = upstream
        self.size = size  # connections to the server, for each user, database and settings
        self._lots: dict[bytes, _Lot] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pooler", daemon=True)
        self.port = 0
        self.clients = 0  # that connected
        self.turns: Counter[int] = Counter()  # transactions by the number of the client that had them

    def __enter__(self) -> "Pooler":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for lot in self._lots.values():
            for upstream in lot.free:
                upstream.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        number = self.clients
        with suppress(asyncio.IncompleteReadError, OSError):
            startup = await _startup(reader, writer)
            if startup is not None:
                lot = await self._lot(startup)
                writer.write(lot.free[0].greeting if lot.free else await self._greeting(lot))
                await self._take_turns(number, lot, reader, writer)
        writer.close()

    async def _lot(self, startup: bytes) -> _Lot:
        """The connections for clients that start like this, opened for the first of them."""
        if startup not in self._lots:
            lot = self._lots[startup] = _Lot(startup)
            for _ in range(self.size):
                lot.free.append(await self._connect(startup))
                lot.room.release()
        return self._lots[startup]

    async def _connect(self, startup: bytes) -> _Upstream:
        reader, writer = await asyncio.open_unix_connection(self._upstream)
        writer.write(startup)
        greeting = b""
        while True:
            kind, message = await _message(reader)
            greeting += message
            if kind == b"Z":
                return _Upstream(reader, writer, greeting)
            assert kind != b"E", message

    async def _greeting(self, lot: _Lot) -> bytes:
        async with lot.room:
            return lot.free[0].greeting

    async def _take_turns(
        self, number: int, lot: _Lot, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one transaction after another, each on the connection that was used longest ago."""
        while True:
            kind, message = await _message(reader)
            if kind == b"X":
                return
            async with lot.room:
                upstream = lot.free.popleft()
                self.turns[number] += 1
                whole = False
                try:
                    await _transaction(upstream, kind, message, reader, writer)
                    whole = True
                finally:
                    if not whole:  # its transaction is open: as a pooler would, never give it to another client
                        upstream.writer.close()
                        upstream = await asyncio.shield(self._connect(lot.startup))
                    lot.free.append(upstream)


async def _transaction(
    upstream: _Upstream, kind: bytes, message: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Pass messages both ways until the server is outside of a transaction and has answered everything."""
    awaited = 0

    async def requests(kind: bytes, message: bytes) -> None:
        nonlocal awaited
        while True:
            awaited += kind in ENDS_WITH_READY
            upstream.writer.write(message)
            await upstream.writer.drain()
            kind, message = await _message(reader)

    passing = asyncio.create_task(requests(kind, message))
    try:
        while True:
            answering = asyncio.create_task(_message(upstream.reader))
            await asyncio.wait([answering, passing], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                passing.result()  # the client is gone
            kind, answer = answering.result()
            awaited -= kind == b"Z"
            over = kind == b"Z" and awaited == 0 and answer[5:6] == IDLE
            if over:
                passing.cancel()  # before the client knows, so that nothing of its next transaction is read
            writer.write(answer)
            await writer.drain()
            if over:
                return
    finally:
        passing.cancel()
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            await passing


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """The first message of a client, after it was refused TLS; None for a request to cancel."""
    while True:
        head = await reader.readexactly(8)
        size, code = struct.unpack("!ii", head)
        body = await reader.readexactly(size - 8)
        if code == CANCEL_REQUEST:
            return None
        if code != SSL_REQUEST:
            return head + body
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The next message with its type."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
