"""Lets an application use its store from any thread and any event loop.

Event loops come and go (`asyncio.run` twice in one script, a loop per thread, none at all in Django), but an open store
belongs to one of them. So an application keeps its connection in a background thread with its own event loop, started
at first use, and all calls are handed over to it. An application that is bound to a connection opened elsewhere uses
that one, directly if the caller runs in the same event loop.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from horae.core.errors import HoraeError, Unavailable

if TYPE_CHECKING:
    from horae.sdk.connection import Connection

T = TypeVar("T")
Action = Callable[["Connection"], Coroutine[Any, Any, T]]
Connect = Callable[[], AbstractAsyncContextManager["Connection"]]

EXIT_SECONDS = 3.0  # how long the exit of the process waits for the connection to close


class WouldBlock(HoraeError, RuntimeError):
    """A `…_sync` call inside an event loop, which it would block."""

    def __init__(self, verb: str) -> None:
        super().__init__(f"{verb}_sync() would block the running event loop; use `await … .{verb}(...)`")


class LoopBridge:
    """Runs actions on the connection it is bound to, or else on one that it opens in the background."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._own: BackgroundLoop | None = None
        self._bound: list[BoundConnection] = []
        _bridges.add(self)

    @contextlib.contextmanager
    def bind(self, connection: "Connection") -> Iterator[None]:
        """Use this connection, which belongs to the running event loop, within the block."""
        bound = BoundConnection(connection, asyncio.get_running_loop())
        self._bound.append(bound)
        try:
            yield
        finally:
            if bound in self._bound:
                self._bound.remove(bound)

    async def call(self, action: Action[T]) -> T:
        """Run an action from a coroutine, whatever event loop that runs in."""
        target = self._target()
        if target.loop is asyncio.get_running_loop():
            return await target.run(action)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(target.run(action), target.loop))

    def call_sync(self, action: Action[T], verb: str) -> T:
        """Run an action from a thread without an event loop; raises WouldBlock if one is running."""
        if _in_event_loop():
            raise WouldBlock(verb)
        target = self._target()
        future = asyncio.run_coroutine_threadsafe(target.run(action), target.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C also stops the action that was waited for
            raise

    async def close(self) -> None:
        """Close the background connection; the next action opens another."""
        if (own := self._take_own()) is not None:
            await asyncio.to_thread(own.close)

    def close_sync(self) -> None:
        """The same from a thread without an event loop."""
        if (own := self._take_own()) is not None:
            own.close()

    def reset_after_fork(self) -> None:
        """Forget the parent's connections in a forked child, but keep references so that none is closed here."""
        _inherited.extend(self._bound)
        if self._own is not None:
            _inherited.append(self._own)
        self._lock, self._own, self._bound = threading.Lock(), None, []

    def _take_own(self) -> "BackgroundLoop | None":
        with self._lock:
            own, self._own = self._own, None
        return own

    def _target(self) -> "BoundConnection | BackgroundLoop":
        if self._bound:
            return self._bound[-1]
        with self._lock:
            if self._own is None:
                self._own = BackgroundLoop(self._connect)
            return self._own


class BoundConnection:
    """A connection that was opened elsewhere, and the event loop it belongs to."""

    def __init__(self, connection: "Connection", loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._connection = connection

    async def run(self, action: Action[T]) -> T:
        """Run an action; call this in the event loop of the connection."""
        return await action(self._connection)


class BackgroundLoop:
    """A thread with an event loop that holds one connection, from the first action until `close`."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._stack = contextlib.AsyncExitStack()
        self._opening: asyncio.Task[Connection] | None = None
        self._closing = False
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="horae-sdk", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)

    async def run(self, action: Action[T]) -> T:
        """Run an action; call this in the event loop of this thread."""
        try:
            return await action(await self._connection())
        except asyncio.CancelledError:
            if self._closing:  # must not look as if the caller had been cancelled
                raise Unavailable("the application was closed during the call") from None
            raise

    def close(self, within: float | None = None) -> None:
        """Close the connection and stop the thread."""
        atexit.unregister(self._close_at_exit)
        if not self._thread.is_alive():
            return  # inherited from a parent process
        try:
            asyncio.run_coroutine_threadsafe(self._disconnect(), self.loop).result(within)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(within)

    async def _connection(self) -> "Connection":
        if self._opening is None:
            self._opening = asyncio.create_task(self._stack.enter_async_context(self._connect()))
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._opening is opening:
                self._opening = None  # the next action retries
            raise

    async def _disconnect(self) -> None:
        self._closing = True
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._stack.aclose()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def _close_at_exit(self) -> None:
        with contextlib.suppress(TimeoutError):  # everything acknowledged is durable, even without a clean close
            self.close(EXIT_SECONDS)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop  # late: a process that only declares tasks needs no loop

    return uvloop.new_event_loop()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_bridges: "weakref.WeakSet[LoopBridge]" = weakref.WeakSet()
_inherited: list[object] = []  # from the parent of a forked process


def _after_fork() -> None:
    for bridge in list(_bridges):
        bridge.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)
