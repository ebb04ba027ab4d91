"""An event loop in virtual time, which stands still until a test advances it and then jumps without waiting.

When nothing is ready, an ordinary loop sleeps until its next timer. This one waits only for real work in progress (a
thread, a reply on a socket) and otherwise jumps to the next timer. So `await asyncio.sleep(3600)` takes an hour of
virtual time and no real time, and everything happens at its exact instant, in order.
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

SOCKET_SECONDS = 0.1  # real seconds that time waits for the sockets of handlers
TURN_SECONDS = 0.2  # real seconds after which the next function starts although one is still blocking
REAL_LIMIT = 60.0  # real seconds that time waits for functions and threads before the test fails
_MICROS = 1_000_000


class StandStill(AssertionError):
    """Virtual time cannot advance, because something takes real time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which runs in a thread of its own; tests call it from theirs."""

    def __init__(self) -> None:
        self._micros = 0
        self.elapsed = timedelta()  # virtual time since the start, exactly
        self._limit = 0  # how far time may advance
        self._settled: asyncio.Future[None] | None = None  # done once everything up to the limit is done
        self.engine_running = asyncio.Event()  # while clear, the engine waits, whatever is submitted
        self._calls: set[asyncio.Task[Any]] = set()  # calls from other threads, for which time advances as needed
        self._handler_calls: set[asyncio.Task[Any]] = set()  # calls that a handler in a thread waits for
        self._register_in: set[asyncio.Task[Any]] | None = None  # where new tasks are remembered
        self.real_work = 0  # functions and threads in progress
        self.coroutine_handlers = 0  # handlers that may wait for sockets
        self._blocked_callbacks: list[Callable[[], None]] = []
        self._waited = 0.0  # real seconds since the last event from a thread or socket
        self._failure: BaseException | None = None
        self._sockets = _IdleSelector(self._when_idle, self._real_event)
        super().__init__(self._sockets)
        self._clock_resolution = 1 / _MICROS
        self._thread = threading.Thread(target=self._run, name="horae-virtual-time", daemon=True)

    # --- for the thread of the test

    def start(self) -> None:
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, free: bool = False) -> T:
        """Run work in the loop; time stands still unless the work advances it, or `free` lets it take what it needs."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("only tests can advance time; a handler cannot")
        outcome: Future[T] = Future()
        super().call_soon_threadsafe(self._start_call, work, outcome, free)
        return outcome.result()

    def end(self) -> None:
        """Stop the loop and its thread."""
        super().call_soon_threadsafe(self.stop)
        self._thread.join()

    def _start_call(self, work: Coroutine[Any, Any, T], outcome: "Future[T]", free: bool) -> None:
        self._register_in = self._calls if free else None
        task = self.create_task(work)
        self._register_in = None

        def deliver(done: "asyncio.Task[T]") -> None:
            if done.cancelled():
                outcome.set_exception(StandStill("the system was closed during the call"))
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(deliver)

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
    def ahead(self) -> timedelta:
        """How far the current call still advances time."""
        return timedelta(microseconds=max(self._limit - self._micros, 0))

    async def advance(self, duration: timedelta) -> None:
        """Advance time by `duration`; returns once everything until then is done."""
        self._limit = max(self._limit, self._micros + duration // timedelta(microseconds=1))
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is left to do before time would have to advance."""
        if self._failure is not None:
            raise self._failure
        self._waited = 0.0
        self._settled = self.create_future()
        self.engine_running.set()
        try:
            await self._settled
        finally:
            self._settled = None
            self.engine_running.clear()

    def call_when_blocked(self, callback: Callable[[], None]) -> None:
        """Call the function whenever real work has blocked for `TURN_SECONDS`."""
        self._blocked_callbacks.append(callback)

    def fail(self, error: BaseException) -> None:
        """Raise the error in the current or the next call that advances time."""
        self._failure = error
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(error)

    # --- threads and calls from other threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, real_function(func), *args)
        self.real_work += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, future: object) -> None:
        self.real_work -= 1

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if getattr(callback, "__module__", None) != "asyncio.tasks":  # not from run_coroutine_threadsafe
            return super().call_soon_threadsafe(callback, *args, context=context)
        calls = self._handler_calls if getattr(_thread, "is_handler", False) else self._calls
        return super().call_soon_threadsafe(self._start_registered, calls, callback, args, context=context)

    def _start_registered(self, calls: "set[asyncio.Task[Any]]", callback: Callable[..., object], args: Any) -> None:
        """Start the call of another thread and remember its task."""
        self._register_in = calls
        try:
            callback(*args)
        finally:
            self._register_in = None

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        if (calls := self._register_in) is not None:
            calls.add(task)
            task.add_done_callback(lambda done: self._unregister(done, calls))
        return task

    def _unregister(self, task: "asyncio.Task[Any]", calls: "set[asyncio.Task[Any]]") -> None:
        calls.discard(task)
        if self._settled is None and not self._calls:
            self.engine_running.clear()

    # --- what to do when nothing is ready

    def _when_idle(self, timeout: float | None) -> float | None:
        """How many real seconds to wait for threads and sockets: 0 if time advanced instead, None without a limit."""
        if self.real_work > len(self._handler_calls):  # else all handlers wait for calls into this loop
            return self._wait_for_threads()
        if self.coroutine_handlers and self._sockets.others and self._waited < SOCKET_SECONDS:
            return self._wait(SOCKET_SECONDS)
        self._waited = 0.0
        if self._calls and not self.engine_running.is_set():  # a caller waits for the engine
            self.engine_running.set()
            return 0
        next_timer = None if timeout is None else self._micros + max(round(timeout * _MICROS), 0)
        if next_timer is not None and (next_timer <= self._limit or self._calls):
            self._move_to(next_timer)
            self._limit = max(self._limit, next_timer)
            return 0
        if self._micros < self._limit:
            self._move_to(self._limit)
            return 0
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
            return 0
        self.engine_running.clear()
        return None

    def _move_to(self, micros: int) -> None:
        self._micros = micros
        self.elapsed = timedelta(microseconds=micros)

    def _wait_for_threads(self) -> float:
        if self._waited >= TURN_SECONDS:
            for callback in self._blocked_callbacks:
                callback()
        if self._waited >= REAL_LIMIT:
            self._waited = 0.0
            self.fail(
                StandStill(
                    f"a function has been running for {REAL_LIMIT:.0f} s, and virtual time waits for it;"
                    " use `await asyncio.sleep` in a coroutine to sleep, which takes no real time"
                )
            )
        return self._wait(TURN_SECONDS)

    def _wait(self, seconds: float) -> float:
        self._waited += seconds
        return seconds

    def _real_event(self) -> None:
        self._waited = 0.0


class _IdleSelector(selectors.DefaultSelector):
    """A selector that lets the loop decide how long to wait, instead of sleeping until a timer."""

    def __init__(self, when_idle: Callable[[float | None], float | None], on_event: Callable[[], None]) -> None:
        super().__init__()
        self._when_idle = when_idle
        self._on_event = on_event

    @property
    def others(self) -> bool:
        """Whether anything but the loop's own wake-up pipe is registered."""
        return len(self.get_map()) > 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        idle = timeout is None or timeout > 0
        events: list[tuple[selectors.SelectorKey, int]] = super().select(0) if self.others or not idle else []
        if idle and not events and (wait := self._when_idle(timeout)) != 0:
            events = super().select(wait)
        if events:
            self._on_event()
        return events


_thread = threading.local()


def real_function(function: Callable[..., T]) -> Callable[..., T]:
    """The function, marked as running in a thread that virtual time waits for."""

    def marked(*args: Any) -> T:
        _thread.is_handler = True
        try:
            return function(*args)
        finally:
            _thread.is_handler = False

    return marked


class VirtualClock:
    """The clock of the engine, which shows the time of a virtual loop."""

    def __init__(self, loop: VirtualLoop, start: datetime) -> None:
        self._loop = loop
        self._start = self._now = start
        self._elapsed = loop.elapsed

    def now(self) -> datetime:
        if (elapsed := self._loop.elapsed) is not self._elapsed:
            self._elapsed, self._now = elapsed, self._start + elapsed
        return self._now

    def elapsed(self) -> float:
        return self._loop.time()

    @property
    def offset(self) -> timedelta:
        return timedelta()

    def sync(self, store_time: datetime, *, asked_at: float, answered_at: float) -> None:
        """Do nothing: the store follows this clock."""

    async def wait(self, event: asyncio.Event, until: datetime | None) -> bool:
        """Wait for the event or the time, and then until the engine may run."""
        if not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else max((until - self.now()).total_seconds(), 0)):
                    await event.wait()
        await self._loop.engine_running.wait()
        return event.is_set()
