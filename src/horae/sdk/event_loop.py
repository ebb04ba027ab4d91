"""How an application reaches its store, from any thread and any event loop.

Event loops come and go (`asyncio.run` twice in one script, a loop per thread, none at all in Django), and what an open
store holds belongs to one of them. So an application keeps its connection in a thread with an event loop of its own,
started when it is first needed; everybody else hands their work over. An application that is bound to a connection
which somebody else opened uses that one, and directly where they share the event loop.
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
Act = Callable[["Connection"], Coroutine[Any, Any, T]]
Open = Callable[[], AbstractAsyncContextManager["Connection"]]

EXIT_SECONDS = 3.0  # that the end of a process waits for the connection to be closed


class WouldBlock(HoraeError, RuntimeError):
    """A `…_sync` call inside an event loop, which it would bring to a halt."""

    def __init__(self, verb: str) -> None:
        super().__init__(f"{verb}_sync() would block the event loop that runs here; use `await … .{verb}(...)`")


class Desk:
    """Does acts on a connection: the one it is bound to, else one of its own."""

    def __init__(self, connect: Open) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._own: Session | None = None
        self._bound: list[Bound] = []
        _desks.add(self)

    @contextlib.contextmanager
    def bind(self, connection: "Connection") -> Iterator[None]:
        """Use this connection, which belongs to the event loop that runs here, for as long as the block lasts."""
        bound = Bound(connection, asyncio.get_running_loop())
        self._bound.append(bound)
        try:
            yield
        finally:
            if bound in self._bound:
                self._bound.remove(bound)

    async def call(self, act: Act[T]) -> T:
        """Do an act from a coroutine, in whatever event loop it runs."""
        place = self._place()
        if place.loop is asyncio.get_running_loop():
            return await place.do(act)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(place.do(act), place.loop))

    def call_sync(self, act: Act[T], verb: str) -> T:
        """Do an act from a thread without an event loop; raises WouldBlock where there is one."""
        if _in_event_loop():
            raise WouldBlock(verb)
        place = self._place()
        future = asyncio.run_coroutine_threadsafe(place.do(act), place.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # a Ctrl-C ends the wait, and what was waited for
            raise

    async def close(self) -> None:
        """Close the connection of one's own; the next act opens another."""
        if (session := self._taken()) is not None:
            await asyncio.to_thread(session.close)

    def close_sync(self) -> None:
        """The same from a thread without an event loop."""
        if (session := self._taken()) is not None:
            session.close()

    def begin_anew(self) -> None:
        """In a forked child: what the parent opened stays the parent's, and is kept so that nobody here closes it."""
        _inherited.extend(self._bound)
        if self._own is not None:
            _inherited.append(self._own)
        self._lock, self._own, self._bound = threading.Lock(), None, []

    def _taken(self) -> "Session | None":
        with self._lock:
            session, self._own = self._own, None
        return session

    def _place(self) -> "Bound | Session":
        if self._bound:
            return self._bound[-1]
        with self._lock:
            if self._own is None:
                self._own = Session(self._connect)
            return self._own


class Bound:
    """A connection that somebody else opened, and the event loop it belongs to."""

    def __init__(self, connection: "Connection", loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._connection = connection

    async def do(self, act: Act[T]) -> T:
        """Do an act, in the event loop of the connection."""
        return await act(self._connection)


class Session:
    """A thread with an event loop, and in it a connection from the first act to the end."""

    def __init__(self, connect: Open) -> None:
        self._connect = connect
        self._stack = contextlib.AsyncExitStack()
        self._opening: asyncio.Task[Connection] | None = None
        self._closing = False
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="horae-sdk", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)

    async def do(self, act: Act[T]) -> T:
        """Do an act, in the event loop of this session."""
        try:
            return await act(await self._connection())
        except asyncio.CancelledError:
            if self._closing:  # not the caller's doing: it must not look as if the caller were cancelled
                raise Unavailable("the application was closed meanwhile") from None
            raise

    def close(self, within: float | None = None) -> None:
        """Close the connection and end the thread."""
        atexit.unregister(self._close_at_exit)
        if not self._thread.is_alive():
            return  # the session of a parent process
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(within)
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
                self._opening = None  # the next act tries again
            raise

    async def _end(self) -> None:
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
        with contextlib.suppress(TimeoutError):  # what was acknowledged is durable, whether or not we take our leave
            self.close(EXIT_SECONDS)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop  # late: a process that only declares needs no loop

    return uvloop.new_event_loop()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_desks: "weakref.WeakSet[Desk]" = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    for desk in list(_desks):
        desk.begin_anew()


os.register_at_fork(after_in_child=_after_fork)
