"""Users' handlers under virtual time: really run, functions one at a time, and counted while time waits for them."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from horae.core.model import Run
from horae.engine.execution.attempt import Done, Progressed, RunningAttempt
from horae.engine.execution.executor import Executor
from horae.engine.execution.outcome import AttemptResult
from horae.engine.execution.thread_attempt import ThreadPool, Work
from horae.tasks.registry import TaskKind
from horae.testing.virtual_time import VirtualLoop, outside_function

REAL_TASKS = frozenset({"http.request", "shell.run"})  # coroutines that do nothing but wait for the real world


class TurnPool(ThreadPool):
    """Threads that take turns, so that functions which are due together run in their order, every time.

    One that blocks for a while lets the next begin: it may be waiting for it.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(limit=0)
        self._loop = loop
        self._line: deque[Work] = deque()
        self._busy = 0
        loop.give_way = self.give_way

    def submit(self, work: Work) -> None:
        self._line.append(work)
        if not self._busy:
            self.give_way()

    def give_way(self) -> None:
        """Let the next function begin; called on the event loop."""
        if self._line:
            self._busy += 1
            take_turn = outside_function(self._take_turn)
            threading.Thread(target=take_turn, args=(self._line.popleft(),), name="horae-task", daemon=True).start()

    def close(self) -> None:
        self._line.clear()

    def _take_turn(self, work: Work) -> None:
        work()
        with contextlib.suppress(RuntimeError):  # the loop is closed: this function was left behind
            self._loop.call_soon_threadsafe(self._next_turn)

    def _next_turn(self) -> None:
        self._busy -= 1
        if not self._busy:
            self.give_way()


class Handlers:
    """Begins attempts as the engine's executor does, and tells virtual time what they are."""

    def __init__(self, executor: Executor, loop: VirtualLoop) -> None:
        self._executor = executor
        self._loop = loop

    @property
    def abandoned(self) -> int:
        return self._executor.abandoned

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        """Start an attempt."""
        task = self._executor.registry.get(run.spec.task)
        kind = TaskKind.ASYNC if task is None else task.kind
        leave = self._enter(outside=kind is not TaskKind.ASYNC or run.spec.task in REAL_TASKS)

        def ended(run: Run, result: AttemptResult) -> None:
            leave()
            done(run, result)

        return self._executor.begin(run, ended, progressed)

    def _enter(self, *, outside: bool) -> Callable[[], None]:
        if outside:
            self._loop.outside += 1
        else:
            self._loop.handlers += 1

        def leave() -> None:
            if outside:
                self._loop.outside -= 1
            else:
                self._loop.handlers -= 1

        return leave
