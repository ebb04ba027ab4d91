"""Runs users' handlers under virtual time: functions one at a time, counted while time waits for them."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from horae.core.model import Run
from horae.engine.execution.attempt import Done, Progressed, RunningAttempt
from horae.engine.execution.executor import Executor
from horae.engine.execution.outcome import AttemptResult, Success
from horae.engine.execution.thread_attempt import ThreadPool, Work
from horae.tasks.registry import TaskKind
from horae.testing.virtual_time import VirtualLoop, real_function

REAL_TASKS = frozenset({"http.request", "shell.run"})  # coroutines that wait for sockets and processes


class TurnPool(ThreadPool):
    """Threads that take turns, so that functions which are due together always run in the same order.

    If one blocks for a while, the next starts, because the first may be waiting for it.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(limit=0)
        self._loop = loop
        self._queue: deque[Work] = deque()
        self._turns: SimpleQueue[Work | None] = SimpleQueue()  # what a thread takes next; None: it ends
        self._threads = 0
        self._busy = 0  # threads that run a function
        loop.call_when_blocked(self.start_next)

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        if not self._busy:
            self.start_next()

    def add_thread(self) -> None:
        """Start the next function, because the current one waits."""
        self.start_next()

    def remove_thread(self) -> None:
        """Do nothing: threads without a function wait for their next turn."""

    def start_next(self) -> None:
        """Start the next function; call this in the event loop."""
        if self._queue:
            self._busy += 1
            self._turns.put(self._queue.popleft())
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(target=real_function(self._serve), name="horae-task", daemon=True).start()

    def close(self) -> None:
        self._queue.clear()
        for _ in range(self._threads):
            self._turns.put(None)

    def _serve(self) -> None:
        while (work := self._turns.get()) is not None:
            work()
            with contextlib.suppress(RuntimeError):  # the loop was closed while this function ran
                self._loop.call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        self._busy -= 1
        if not self._busy:
            self.start_next()


class CountingExecutor:
    """Starts attempts with the engine's executor, and counts them for virtual time."""

    def __init__(
        self, executor: Executor, loop: VirtualLoop, *, begins: Callable[[], None], unsuccessful: Callable[[], None]
    ) -> None:
        """`begins` is called before each attempt, and `unsuccessful` after each that did not succeed."""
        self._executor = executor
        self._loop = loop
        self._begins = begins
        self._unsuccessful = unsuccessful

    @property
    def abandoned(self) -> int:
        return self._executor.abandoned

    @property
    def lent(self) -> int:
        return self._executor.lent

    def when_lent(self, call: Callable[[], None]) -> None:
        self._executor.when_lent(call)

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt:
        """Start an attempt."""
        task = self._executor.registry.get(run.spec.task)
        kind = TaskKind.ASYNC if task is None else task.kind
        real = kind is not TaskKind.ASYNC or run.spec.task in REAL_TASKS

        def ended(run: Run, result: AttemptResult) -> None:
            self._count(-1, real=real)
            done(run, result)
            if not isinstance(result, Success):
                self._unsuccessful()

        self._count(1, real=real)
        self._begins()
        return self._executor.begin(run, ended, progressed)

    def _count(self, change: int, *, real: bool) -> None:
        if real:
            self._loop.real_work += change
        else:
            self._loop.coroutine_handlers += change
