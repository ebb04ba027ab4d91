"""An event loop in virtual time on which hosts can be killed and frozen at any step.

Time jumps to the next timer when nothing is ready, so nothing ever sleeps, and the order of events depends only on what
was scheduled. Every step of a task belongs to the host in whose context it was created. A killed host takes no further
step, not even to clean up, as after kill -9; a frozen one takes its steps later, as after SIGSTOP and SIGCONT.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

MICROS = 1_000_000


class Machine:
    """A host that can be killed or frozen; its tasks run in copies of `context`."""

    def __init__(self) -> None:
        self.halted = False  # killed or frozen
        self.missed: list[asyncio.Handle] = []  # steps that it did not take
        self.context: Context = copy_context()
        self.context.run(MACHINE.set, self)


MACHINE: ContextVar[Machine | None] = ContextVar("machine", default=None)


class Deadlock(AssertionError):
    """No step is ready, and no timer is set."""


class _Step(asyncio.TimerHandle):
    """One step of a task, without the debug fields of asyncio, because there are hundreds of thousands."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = False
        self._source_traceback = None
        self._repr = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs the steps of all hosts in an order that depends only on their times."""

    def __init__(self) -> None:
        super().__init__()
        self._micros = 0
        self._seconds = 0.0  # the same
        self._clock_resolution = 1 / MICROS
        self._timers: list[tuple[float, int, _Step]] = []  # those of one instant in the order of creation
        self._made = itertools.count()
        self.outside = Context()  # for steps that belong to no host: the store, the wire, the users

    def time(self) -> float:
        return self._seconds

    @property
    def micros(self) -> int:
        return self._micros

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> "asyncio.Task[Any]":
        """Create a task for the current host, even if its context is a new one."""
        machine = MACHINE.get()
        if context is not None and machine is not None and MACHINE not in context:
            context.run(MACHINE.set, machine)
        return super().create_task(coro, name=name, context=context)

    def spawn(self, machine: Machine, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Start a task on a host."""
        return self.create_task(work, name=name, context=machine.context.copy())

    def resume_steps(self, machine: Machine) -> None:
        """Let a frozen host take the steps that it missed, and continue."""
        machine.halted = False
        missed, machine.missed = machine.missed, []
        self._ready.extend(missed)  # type: ignore[attr-defined]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        step = _Step(0.0, callback, args, self, context)
        self._ready.append(step)  # type: ignore[attr-defined]
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._seconds + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Step(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._made), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the timer is skipped when its time comes."""

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            self._jump()
        end = self._seconds + self._clock_resolution / 2
        while timers and timers[0][0] <= end:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            machine = handle._context.get(MACHINE)
            if machine is not None and machine.halted:
                machine.missed.append(handle)
                continue
            handle._run()

    def _jump(self) -> None:
        """Advance the time to the next timer."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock
        micros = math.ceil(timers[0][0] * MICROS - 0.5)
        if timers[0][0] > micros / MICROS + self._clock_resolution / 2:
            micros += 1  # or time would stand still, by the rounding of half a microsecond
        self._micros = max(self._micros, micros)
        self._seconds = self._micros / MICROS

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no files or sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread."""
