"""Connections to PostgreSQL that are handed round: few, open for long, each used by one at a time."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

IDLE = 300.0  # seconds after which a connection that nobody needed is closed

_UNFIT = (
    TimeoutError,  # the statement may still be at work on the server: asyncpg is about to tell it
    asyncpg.ReadOnlySQLTransactionError,  # a standby: another connection may lead to the server that takes writes now
)


class Connections:
    """Up to so many connections; the one that was left last is taken up first, so that few are kept busy.

    asyncpg's own pool does the same with a task for every time that one is given back: 80 µs for each statement, more
    than most of them take the client in all.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience  # seconds to wait for one that is free, and for those at work when all are closed
        self._places = asyncio.Semaphore(size)
        self._free: deque[tuple[float, Any]] = deque()  # with when it was left; the last one at the end
        self._busy: set[Any] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """A connection of one's own for a while; TimeoutError when none becomes free."""
        connection = await self._take()
        try:
            yield connection
        except BaseException as exc:
            if isinstance(exc, TimeoutError):
                self._doubt()
            self._leave(connection, fit=isinstance(exc, Exception) and not isinstance(exc, _UNFIT))
            raise
        self._leave(connection, fit=True)

    async def close(self) -> None:
        """Close all, those at work when they are left, at the latest when they have had their time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                for _ in range(self._size):
                    await self._places.acquire()
                for _, connection in self._free:
                    await _quietly(connection.close())
                await asyncio.gather(*self._leaving)
        for connection in (*self._busy, *(connection for _, connection in self._free)):
            connection.terminate()

    async def _take(self) -> Any:
        if self._places.locked():
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        else:
            await self._places.acquire()  # at once: a timer would cost more than the rest of this
        try:
            connection = self._left_last() or await self._connect()
        except BaseException:
            self._places.release()
            raise
        self._busy.add(connection)
        return connection

    def _left_last(self) -> Any:
        while self._free:
            _, connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    def _leave(self, connection: Any, *, fit: bool) -> None:
        now = time.monotonic()
        if fit and not connection.is_closed() and not connection.is_in_transaction():
            self._busy.discard(connection)
            self._free.append((now, connection))
            self._places.release()
        else:
            self._see_off(self._dismiss(connection))
        if self._free and self._free[0][0] < now - IDLE:
            self._see_off(self._free.popleft()[1].close(timeout=self._patience))

    def _doubt(self) -> None:
        """Let go of those that nobody has used since: a server that is silent on one is so on others, one by one."""
        began_at = time.monotonic() - self._patience
        while self._free and self._free[0][0] < began_at:
            self._free.popleft()[1].terminate()

    async def _dismiss(self, connection: Any) -> None:
        """Close a connection that nobody may use any more; only then is there a place for another."""
        try:
            await connection.close(timeout=self._patience)
        finally:
            self._busy.discard(connection)
            self._places.release()

    def _see_off(self, farewell: Any) -> None:
        task = asyncio.ensure_future(_quietly(farewell))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


async def _quietly(farewell: Any) -> None:
    with suppress(Exception):  # a connection that cannot be closed is gone as well
        await farewell
