"""A TCP proxy before PostgreSQL that delays, cuts, resets or silences connections, and counts each fault.

Every node has a link of its own, a port of the proxy, so that a fault can affect one node. The proxy parses enough of
the protocol to know which statement is running; a trap stops a statement exactly before the server has seen it, or
after the server has committed it and before the client knows.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from horae.stores.common.statements import load

T = TypeVar("T")

SSL_REQUEST = 80877103
CHUNK = 1 << 16
ENDS = ("commit", "rollback")
NAMES = {sql.strip(): name for name, sql in load("postgres").items()}


class Side(Enum):
    """Where a statement is stopped."""

    BEFORE = "before"  # the server has not seen it
    AFTER = "after"  # the server has done it; the client does not know


class TrapAction(Enum):
    """What to do with a stopped statement."""

    CUT = "cut"  # both ends lose the connection; what was not sent on never arrives
    LATE = "late"  # it arrives after all, though its client is gone by now; the answer goes nowhere


@dataclass(eq=False, slots=True)
class Trap:
    """Stops the first of some statements until it is released or dropped."""

    statements: Collection[str]
    side: Side
    commits: bool = False  # whether only a statement counts that commits by itself, or COMMIT
    sprung: threading.Event = field(default_factory=threading.Event)
    verdict: Future[TrapAction] = field(default_factory=Future)
    caught: str = ""  # the statement

    def decide(self, verdict: TrapAction) -> None:
        self.verdict.set_result(verdict)


class Link:
    """The connection of one node to the server, with its faults."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self.wires: set[_Wire] = set()
        self.traps: list[Trap] = []
        self.port = 0
        self.delay = 0.0  # seconds that everything takes longer, each way
        self.rate = 0.0  # bytes per second; 0: as fast as it goes
        self.silent = False  # half-open: connections stand, and nothing comes through any more
        self.fired: Counter[str] = Counter()  # how often each fault took effect

    def set_trap(self, statements: Collection[str], side: Side, *, commits: bool = False) -> Trap:
        trap = Trap(statements, side, commits)
        self._proxy.call(self._add(trap))
        return trap

    def take_away(self, trap: Trap) -> None:
        """Remove a trap that was not triggered."""
        self._proxy.call(self._remove(trap))

    def reset(self) -> int:
        """Reset every connection (RST); return how many there were."""
        return self._proxy.call(self._reset())

    def heal(self) -> None:
        """End all faults; a silent connection stays silent until its client closes it."""
        self.delay, self.rate, self.silent = 0.0, 0.0, False

    async def _add(self, trap: Trap) -> None:
        self.traps.append(trap)

    async def _remove(self, trap: Trap) -> None:
        if trap in self.traps:
            self.traps.remove(trap)

    async def _reset(self) -> int:
        wires = list(self.wires)
        for wire in wires:
            wire.abort()
        self.fired["reset"] += len(wires)
        return len(wires)

    def caught(self, statement: str, side: Side, *, commits: bool) -> Trap | None:
        """Return and remove the trap for this statement, if there is one."""
        for trap in self.traps:
            if trap.side is side and statement in trap.statements and (commits or not trap.commits):
                self.traps.remove(trap)
                trap.caught = statement
                return trap
        return None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.silent:  # the handshake of TCP succeeds, and then nothing comes
                self.fired["half-open"] += 1
                await _swallow(reader)
            else:
                await self._connect(reader, writer)
        except OSError:
            pass  # the server is down, or one of the ends is gone
        finally:
            await _end(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._proxy.upstream)
        wire = _Wire(self, reader, writer, up_reader, up_writer)
        self.wires.add(wire)
        try:
            await wire.run()
        finally:
            self.wires.discard(wire)
            await _end(up_writer)


class Proxy:
    """The proxy, in its own thread; `upstream` is the socket of the server."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self) -> Link:
        """Open a new link to the server."""
        link = Link(self)
        self.call(link.open())
        self._links.append(link)
        return link

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _close(self) -> None:
        for link in self._links:
            await link.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Wire:
    """One connection through the proxy."""

    def __init__(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        self._link = link
        self._reader, self._writer = reader, writer
        self._up_reader, self._up_writer = up_reader, up_writer
        self._prepared: dict[bytes, str] = {}  # the driver's name of a statement → ours
        self._in_transaction = False
        self._dead = False  # half-open: it stands, and nothing comes through ever again
        self._awaited: Trap | None = None  # springs when the server has answered
        self._orphaned = False  # a statement is under way whose client is gone

    async def run(self) -> None:
        """Pass data until one side closes, or a fault ends it."""
        if not await self._greet():
            return
        pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for outcome in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                    raise outcome

    def abort(self) -> None:
        _abort(self._writer)
        _abort(self._up_writer)

    async def _greet(self) -> bool:
        """Pass the first messages, which have no type; return False if the client closed."""
        while True:
            try:
                head = await self._reader.readexactly(8)
                size, code = struct.unpack("!ii", head)
                body = await self._reader.readexactly(size - 8)
                await self._forward(self._up_writer, head + body)
                if code != SSL_REQUEST:
                    return True
                await self._forward(self._writer, await self._up_reader.readexactly(1))
            except (asyncio.IncompleteReadError, OSError):
                return False

    async def _requests(self) -> None:
        messages = _Messages()
        while data := await self._reader.read(CHUNK):
            passing = bytearray()
            for kind, message in messages.feed(data):
                statement = self._statement(kind, message)
                commits = statement == "commit" or not self._in_transaction
                self._in_transaction = (self._in_transaction or statement == "begin") and statement not in ENDS
                if statement and (trap := self._link.caught(statement, Side.BEFORE, commits=commits)):
                    await self._forward(self._up_writer, bytes(passing))
                    passing.clear()
                    if await self._sprung(trap) is TrapAction.CUT:
                        return
                    self._orphaned = True
                elif statement and (trap := self._link.caught(statement, Side.AFTER, commits=commits)):
                    self._awaited = trap
                passing += message
            await self._forward(self._up_writer, bytes(passing))
            if self._orphaned:
                await asyncio.Event().wait()  # the answer ends it: a server that is hung up on may give up before

    async def _answers(self) -> None:
        messages = _Messages()
        held = bytearray()
        failed = False
        while data := await self._up_reader.read(CHUNK):
            if self._awaited is None and not self._orphaned:
                messages.skip(data)
                await self._forward(self._writer, data)
                continue
            for kind, message in messages.feed(data):
                if self._orphaned and kind == b"Z":
                    return
                held += message
                failed = failed or kind == b"E"
                if kind != b"Z":
                    continue
                trap, self._awaited = self._awaited, None
                if trap is not None and failed:  # nothing was committed: the next one, then
                    self._link.traps.append(trap)
                elif trap is not None and await self._sprung(trap) is TrapAction.CUT:
                    return
                await self._forward(self._writer, bytes(held))
                held.clear()
                failed = False
        if self._link.silent:
            await asyncio.Event().wait()  # nor does its client hear that the server is gone

    async def _sprung(self, trap: Trap) -> TrapAction:
        self._link.fired[f"stopped {trap.side.value} {trap.caught}"] += 1
        trap.sprung.set()
        return await asyncio.shield(asyncio.wrap_future(trap.verdict))  # whoever decides may do so later

    def _statement(self, kind: bytes, message: bytes) -> str | None:
        """The name of the statement that a message executes, if it does; also BEGIN and COMMIT."""
        if kind == b"P":
            name, sql, _ = message[5:].split(b"\0", 2)
            self._prepared[name] = NAMES.get(sql.decode().strip(), "")
        elif kind == b"B":
            _, name, _ = message[5:].split(b"\0", 2)
            return self._prepared.get(name)
        elif kind == b"Q":
            return message[5:].rstrip(b"\0; ").split(b" ")[0].decode("utf-8", "replace").lower()
        return None

    async def _forward(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        link = self._link
        if link.silent and not self._dead:
            self._dead = True
            link.fired["half-open"] += 1
        if self._dead or not data:
            return
        if link.delay:
            link.fired["delay"] += 1
            await asyncio.sleep(link.delay)
        if link.rate:
            link.fired["throttle"] += 1
            await asyncio.sleep(len(data) / link.rate)
        writer.write(data)
        await writer.drain()


class _Messages:
    """Splits a stream of the protocol into messages with their types."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Yield the complete messages; the rest waits for more data."""
        whole, place = [], 0
        data = self._rest + data
        while (end := _end_of(data, place)) <= len(data):
            whole.append((data[place : place + 1], data[place:end]))
            place = end
        self._rest = data[place:]
        return whole

    def skip(self, data: bytes) -> None:
        """Skip data without parsing it."""
        place = 0
        data = self._rest + data
        while (end := _end_of(data, place)) <= len(data):
            place = end
        self._rest = data[place:]


def _end_of(data: bytes, place: int) -> int:
    """The end of the message that starts here; beyond the data if it is incomplete."""
    if len(data) < place + 5:
        return len(data) + 1
    return place + 1 + int.from_bytes(data[place + 1 : place + 5], "big")


async def _swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(CHUNK):
        pass


async def _end(writer: asyncio.StreamWriter) -> None:
    _abort(writer)
    with suppress(OSError):
        await writer.wait_closed()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST."""
    peer = writer.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0 and peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
