"""An event loop whose time stands still until it is told to move, and then moves without waiting.

When nothing is ready, an ordinary loop sleeps until its next timer. This one looks whether anything of the real world
is under way (a thread, an answer on a socket), waits for that, and else jumps: so `await asyncio.sleep(3600)` takes an
hour of its time and none of ours, and everything happens at its exact instant, in order.
"""

import asyncio
import contextlib
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

SOCKET_PATIENCE = 0.1  # real seconds that a handler's sockets have to answer before time moves on without them
TURN_SECONDS = 0.2  # real seconds after which a function that blocks lets the next one begin
REAL_LIMIT = 60.0  # real seconds that time waits for functions and threads before the test fails
_MICROS = 1_000_000


class StandStill(AssertionError):
    """Virtual time cannot go on, because something takes real time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; it runs in a thread of its own, and tests talk to it from theirs."""

    def __init__(self) -> None:
        self._micros = 0
        self._limit = 0  # time may move up to here
        self._rest: asyncio.Future[None] | None = None  # somebody waits for everything up to the limit to be done
        self.going = asyncio.Event()  # whether the engine may do what is due; else it waits, whatever is submitted
        self._guests: set[asyncio.Task[Any]] = set()  # calls from other threads, which get the time that they take
        self._blocked: set[asyncio.Task[Any]] = set()  # those among them that a function outside waits for
        self._letting_in: set[asyncio.Task[Any]] | None = None
        self.outside = 0  # functions and threads of the real world that are under way
        self.handlers = 0  # coroutines that may wait for sockets
        self.give_way: Callable[[], None] = lambda: None
        self._waited = 0.0  # real seconds since the real world last said something
        self._failure: BaseException | None = None
        self._sockets = _IdleSelector(self._idle, self._heard)
        super().__init__(self._sockets)
        self._clock_resolution = 1 / _MICROS
        self._thread = threading.Thread(target=self._run, name="horae-virtual-time", daemon=True)

    # --- for the thread of the test

    def start(self) -> None:
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, free: bool = False) -> T:
        """Do work in the loop; its time stands still unless the work moves it, or may take what it needs (`free`)."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is for tests; a handler cannot move the time that it runs in")
        outcome: Future[T] = Future()
        super().call_soon_threadsafe(self._begin, work, outcome, free)
        return outcome.result()

    def end(self) -> None:
        """Stop the loop and its thread."""
        super().call_soon_threadsafe(self.stop)
        self._thread.join()

    def _begin(self, work: Coroutine[Any, Any, T], outcome: "Future[T]", free: bool) -> None:
        self._letting_in = self._guests if free else None
        task = self.create_task(work)
        self._letting_in = None

        def tell(done: "asyncio.Task[T]") -> None:
            if done.cancelled():
                outcome.set_exception(StandStill("the system was closed meanwhile"))
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(tell)

    def _run(self) -> None:
        asyncio.set_event_loop(self)
        try:
            self.run_forever()
            self.run_until_complete(self.shutdown_asyncgens())
            self.run_until_complete(self.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self.close()

    # --- time

    def time(self) -> float:
        return self._micros / _MICROS

    @property
    def elapsed(self) -> timedelta:
        """Virtual time since the beginning, exactly."""
        return timedelta(microseconds=self._micros)

    async def move(self, duration: timedelta) -> None:
        """Let time pass up to so much after now; returns when everything until then is done."""
        self._limit = max(self._limit, self._micros + duration // timedelta(microseconds=1))
        await self.rest()

    async def rest(self) -> None:
        """Wait until there is nothing left to do before time would have to move."""
        if self._failure is not None:
            raise self._failure
        self._waited = 0.0
        self._rest = self.create_future()
        self.going.set()
        try:
            await self._rest
        finally:
            self._rest = None
            self.going.clear()

    def fail(self, error: BaseException) -> None:
        """Tell whoever waits, now or next, that the system is broken."""
        self._failure = error
        if self._rest is not None and not self._rest.done():
            self._rest.set_exception(error)

    # --- the real world

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, outside_function(func), *args)
        self.outside += 1
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, future: object) -> None:
        self.outside -= 1

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if getattr(callback, "__module__", None) != "asyncio.tasks":  # not from run_coroutine_threadsafe
            return super().call_soon_threadsafe(callback, *args, context=context)
        waiting = self._blocked if getattr(_here, "outside", False) else self._guests
        return super().call_soon_threadsafe(self._let_in, waiting, callback, args, context=context)

    def _let_in(self, waiting: "set[asyncio.Task[Any]]", callback: Callable[..., object], args: Any) -> None:
        """Begin what another thread asks for, and remember the task."""
        self._letting_in = waiting
        try:
            callback(*args)
        finally:
            self._letting_in = None

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        if (waiting := self._letting_in) is not None:
            waiting.add(task)
            task.add_done_callback(lambda done: self._let_out(done, waiting))
        return task

    def _let_out(self, task: "asyncio.Task[Any]", waiting: "set[asyncio.Task[Any]]") -> None:
        waiting.discard(task)
        if self._rest is None and not self._guests:
            self.going.clear()

    # --- what to do when nothing is ready

    def _idle(self, timeout: float | None) -> float | None:
        """How many real seconds to wait for the real world now; 0 when time has moved instead, None for ever."""
        if self.outside > len(self._blocked):  # else everything outside waits for something in here
            return self._wait_for_threads()
        if self.handlers and self._sockets.others and self._waited < SOCKET_PATIENCE:
            return self._wait(SOCKET_PATIENCE)
        self._waited = 0.0
        if self._guests and not self.going.is_set():  # somebody waits for the engine
            self.going.set()
            return 0
        following = None if timeout is None else self._micros + max(round(timeout * _MICROS), 0)
        if following is not None and (following <= self._limit or self._guests):
            self._micros = following
            self._limit = max(self._limit, following)
            return 0
        if self._micros < self._limit:
            self._micros = self._limit
            return 0
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)
            return 0
        self.going.clear()
        return None

    def _wait_for_threads(self) -> float:
        if self._waited >= TURN_SECONDS:
            self.give_way()
        if self._waited >= REAL_LIMIT:
            self._waited = 0.0
            self.fail(
                StandStill(
                    f"a function has been running for {REAL_LIMIT:.0f} s, and virtual time waits for it;"
                    " sleep in coroutines (`await asyncio.sleep`), which takes no real time"
                )
            )
        return self._wait(TURN_SECONDS)

    def _wait(self, seconds: float) -> float:
        self._waited += seconds
        return seconds

    def _heard(self) -> None:
        self._waited = 0.0


class _IdleSelector(selectors.DefaultSelector):
    """Asks what to do instead of waiting for a timer."""

    def __init__(self, idle: Callable[[float | None], float | None], heard: Callable[[], None]) -> None:
        super().__init__()
        self._decide = idle
        self._heard = heard

    @property
    def others(self) -> bool:
        """Whether anything but the loop's own wake-up pipe is listened to."""
        return len(self.get_map()) > 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not events and (timeout is None or timeout > 0) and (wait := self._decide(timeout)) != 0:
            events = super().select(wait)
        if events:
            self._heard()
        return events


_here = threading.local()


def outside_function(function: Callable[..., T]) -> Callable[..., T]:
    """The function, in a thread that virtual time waits for."""

    def marked(*args: Any) -> T:
        _here.outside = True
        try:
            return function(*args)
        finally:
            _here.outside = False

    return marked


class VirtualClock:
    """The clock of the engine, by the time of a virtual loop."""

    def __init__(self, loop: VirtualLoop, start: datetime) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        return self._start + self._loop.elapsed

    def elapsed(self) -> float:
        return self._loop.time()

    @property
    def offset(self) -> timedelta:
        return timedelta()

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """It is the clock that the store follows."""

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Wait for the event or the time, and until the engine may go on."""
        if not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else max((until - self.now()).total_seconds(), 0)):
                    await event.wait()
        await self._loop.going.wait()
        return event.is_set()
