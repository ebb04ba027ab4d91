"""A service that answers as a test says, and can break off at any point of a request."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

CUT = "cut"  # read the request, then close the connection without an answer
HANG = "hang"  # read the request, and never answer


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request is answered with."""

    body: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def error(code: str, message: str = "", *, status: int = 400, **more: Any) -> Reply:
    """An error as DynamoDB and SQS word it."""
    return Reply({"__type": f"com.amazonaws.any#{code}", "message": message, **more}, status)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    headers: Mapping[str, str]
    body: Any


class ScriptedService:
    """Answers requests in turn by a script, whose last entry is repeated."""

    def __init__(self, script: list[Reply | str]) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.asked: list[Asked] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self.gate = asyncio.Event()  # answers wait until it is set
        self.gate.set()
        self._arrival = asyncio.Condition()
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def seen(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(10):
            async with self._arrival:
                await self._arrival.wait_for(lambda: len(self.asked) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        self.asked.append(Asked(headers, msgspec.json.decode(body)))
        async with self._arrival:
            self._arrival.notify_all()
        reply = self._script[min(len(self.asked), len(self._script)) - 1]
        await self.gate.wait()
        self.at_once -= 1
        if reply == HANG:
            await asyncio.Event().wait()
        if not isinstance(reply, Reply):
            return False
        data = msgspec.json.encode(reply.body)
        more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Scripted\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data)
        await writer.drain()
        return True


@asynccontextmanager
async def scripted(*script: Reply | str) -> AsyncIterator[ScriptedService]:
    """A service that listens until the end of the block."""
    service = ScriptedService(list(script))
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
