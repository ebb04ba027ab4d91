"""A proxy before Redis that cuts, delays or silences connections, and counts how often.

Every node may have a link of its own, a port of the proxy, so that a fault can affect one node.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

CHUNK = 1 << 16


class TcpLink:
    """The way of one node to the server, with its faults."""

    def __init__(self, proxy: "TcpFaults") -> None:
        self._proxy = proxy
        self.server: asyncio.Server | None = None
        self.wires: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self.port = 0
        self.delay = 0.0  # seconds that everything takes longer, each way
        self.silent = False  # connections stand and new ones are accepted, and nothing comes through
        self.refuses = False  # new connections end at once
        self.answers_to_lose = 0  # so many answers never arrive: their connection is cut once the server has answered
        self.fired: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """The address of this link, for a client of Redis."""
        return f"redis://127.0.0.1:{self.port}"

    def cut(self) -> int:
        """Reset every connection; return how many there were."""
        return self._proxy.call(self._cut())

    def heal(self) -> None:
        """End all faults, and reset what was silent, so that clients connect anew."""
        was_silent = self.silent
        self.delay, self.silent, self.refuses, self.answers_to_lose = 0.0, False, False, 0
        if was_silent:
            self.cut()

    async def _cut(self) -> int:
        wires = list(self.wires)
        for near, far in wires:
            _abort(near)
            _abort(far)
        self.fired["cut"] += len(wires)
        return len(wires)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the data of one connection on, both ways, until one end closes it."""
        if self.refuses:
            self.fired["refused"] += 1
            _abort(writer)
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._proxy.upstream)
        except OSError:  # the server is down
            _abort(writer)
            return
        wire = (writer, up_writer)
        self.wires.add(wire)
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, answers=False)),
            asyncio.create_task(self._pump(up_reader, writer, answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.wires.discard(wire)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in wire:
                _abort(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.silent:
                    self.fired["silent"] += 1
                    await asyncio.Event().wait()
                if answers and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    self.fired["answer lost"] += 1
                    return
                if self.delay:
                    self.fired["delay"] += 1
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()


class TcpFaults:
    """The proxy, in a thread of its own; `upstream` is the host and port of the server."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp faults", daemon=True)
        self._links: list[TcpLink] = []

    def __enter__(self) -> "TcpFaults":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self) -> TcpLink:
        """Open one more way to the server."""
        link = TcpLink(self)
        self.call(self._open(link))
        return link

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _open(self, link: TcpLink) -> None:
        link.server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
        link.port = link.server.sockets[0].getsockname()[1]
        self._links.append(link)

    async def _close(self) -> None:
        for link in self._links:
            if link.server is not None:
                link.server.close()
        while others := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            for task in others:  # also those of connections that came in the meantime
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST, so that its other end notices at once."""
    peer = writer.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
