"""A pool of connections to PostgreSQL: few, open for long, each used by one task at a time."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

IDLE = 300.0  # seconds after which an unused connection is closed

_UNFIT = (
    TimeoutError,  # the statement may still run on the server: asyncpg is about to cancel it
    asyncpg.ReadOnlySQLTransactionError,  # a standby: another connection may lead to the server that takes writes now
)


class Connections:
    """Up to `size` connections; the one that was released last is used first, so that few are kept busy.

    asyncpg's own pool starts a task for every release: 80 µs for each statement, more than most of them cost the client
    in all.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience  # seconds to wait for a free one, and for busy ones when all are closed
        self._places = asyncio.Semaphore(size)
        self._free: deque[tuple[float, Any]] = deque()  # with when it was released; the last one at the end
        self._busy: set[Any] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Lend a connection; TimeoutError when none becomes free."""
        connection = await self._take()
        try:
            yield connection
        except BaseException as exc:
            if isinstance(exc, TimeoutError):
                self._doubt()
            self._release(connection, fit=isinstance(exc, Exception) and not isinstance(exc, _UNFIT))
            raise
        self._release(connection, fit=True)

    async def close(self) -> None:
        """Close all, busy ones when they are released, at the latest after `patience`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                for _ in range(self._size):
                    await self._places.acquire()
                for _, connection in self._free:
                    await _ignore_errors(connection.close())
                await asyncio.gather(*self._closing)
        for connection in (*self._busy, *(connection for _, connection in self._free)):
            connection.terminate()

    async def _take(self) -> Any:
        if self._places.locked():
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        else:
            await self._places.acquire()  # at once: a timer would cost more than the rest of this
        try:
            connection = self._released_last() or await self._connect()
        except BaseException:
            self._places.release()
            raise
        self._busy.add(connection)
        return connection

    def _released_last(self) -> Any:
        while self._free:
            _, connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    def _release(self, connection: Any, *, fit: bool) -> None:
        now = time.monotonic()
        if fit and not connection.is_closed() and not connection.is_in_transaction():
            self._busy.discard(connection)
            self._free.append((now, connection))
            self._places.release()
        else:
            self._in_background(self._discard(connection))
        if self._free and self._free[0][0] < now - IDLE:
            self._in_background(self._free.popleft()[1].close(timeout=self._patience))

    def _doubt(self) -> None:
        """Drop those that were not used since a statement began that timed out: they would time out one by one."""
        began_at = time.monotonic() - self._patience
        while self._free and self._free[0][0] < began_at:
            self._free.popleft()[1].terminate()

    async def _discard(self, connection: Any) -> None:
        """Close a connection that must not be used again; only then is there a place for another."""
        try:
            await connection.close(timeout=self._patience)
        finally:
            self._busy.discard(connection)
            self._places.release()

    def _in_background(self, closing: Any) -> None:
        task = asyncio.ensure_future(_ignore_errors(closing))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _ignore_errors(closing: Any) -> None:
    with suppress(Exception):  # a connection that cannot be closed is gone as well
        await closing
