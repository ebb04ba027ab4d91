"""Attempts of plain functions, in threads that neither the loop nor the end of the program waits for."""

import queue
import threading
from collections.abc import Callable
from contextvars import Context

import structlog

from horae.core.model import Run
from horae.engine.execution.attempt import AttemptEnvironment, Done, Progressed, RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, failure_of, success, trace
from horae.tasks.registry import AnyTask

log = structlog.get_logger(__name__)

Work = Callable[[], None]


class ThreadPool:
    """Daemon threads, started when there is work and none is idle, up to a limit; more work waits its turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._size = 0

    def submit(self, work: Work) -> None:
        """Run it soon; called on the event loop. Raises RuntimeError when the machine has no thread for it."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._size < self._limit:
            self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"horae-task-{self._size + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if self._size == 0:  # nobody will come for the work, which is alone in the line
                self._work.get_nowait()
                raise
            log.warning("thread_not_started", threads=self._size)
            return
        self._size += 1

    def close(self) -> None:
        """Let idle threads end; busy ones end after their work, if that ends."""
        for _ in range(self._size):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Work | None:
        try:
            return self._work.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._work.get()


class ThreadAttempt(RunningAttempt):
    """An attempt of a function in a thread: it can be told to stop, not made to."""

    def __init__(
        self, run: Run, task: AnyTask, around: AttemptEnvironment, done: Done, progressed: Progressed, pool: ThreadPool
    ) -> None:
        super().__init__(run, task, around, done, progressed)
        self._pool = pool
        self._progress: float | None = None  # reported, and not yet told on the loop

    def start(self, params: str) -> None:
        try:
            self._pool.submit(lambda: self._work(params))
        except RuntimeError as exc:
            self.around.loop.call_soon(self.finish, failure_of(exc))

    def _work(self, params: str) -> None:
        if not self.enter():
            return
        if self.run.spec.policy.timeout is not None:
            self._on_loop(self.arm_timeout)
        result = Context().run(self._call, params)
        self.end_if_forked()
        self._on_loop(lambda: self._returned(result))

    def _call(self, params: str) -> AttemptResult:
        try:
            arguments = {**self.task.bind(params), **self.injected()}
            return success(self.task.function(**arguments))
        except BaseException as exc:  # noqa: BLE001 - SystemExit ends the attempt, not the thread
            if (text := trace(exc)) is not None:
                self.log.write("ERROR", text)
            return failure_of(exc)

    def _returned(self, result: AttemptResult) -> None:
        """A function that never looked whether to stop has done its work to the end, and its result is good."""
        self.let_go()
        self.finish(Stopped() if self.stopping and self.told else result)

    def _ask_to_stop(self) -> None:
        """`run.cancelled` is true from now on; that is all there is."""

    def _end_by_force(self) -> None:
        self.abandon()

    def _report_progress(self, fraction: float) -> None:
        waiting, self._progress = self._progress, fraction
        if waiting is None:  # however often the task reports, one call at a time waits for the loop
            self._on_loop(self._tell_progress)

    def _tell_progress(self) -> None:
        fraction, self._progress = self._progress, None
        if fraction is not None:
            self.progressed(fraction)

    def _on_loop(self, act: Callable[[], None]) -> None:
        try:
            self.around.loop.call_soon_threadsafe(act)
        except RuntimeError:  # the loop is closed: this is an abandoned task of a worker that has ended
            log.debug("task_outlived_worker", run_id=self.run.id)
