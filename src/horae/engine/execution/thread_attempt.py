"""Attempts of plain functions, in threads that neither the event loop nor the end of the program waits for."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any

import structlog

from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, failure_of, success, trace
from horae.run import current_run

log = structlog.get_logger(__name__)

Work = Callable[[], None]


class ThreadPool:
    """Daemon threads up to a limit, each started when there is work and none is idle; more work waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._size = 0
        self._lock = threading.Lock()

    def add_thread(self) -> None:
        """Allow one more thread, because one of them waits for the work of others."""
        self._limit += 1
        if not self._work.empty():
            self._start_thread()

    def remove_thread(self) -> None:
        """Undo one `add_thread`: the next thread that has nothing to do ends."""
        self._limit -= 1

    def submit(self, work: Work) -> None:
        """Run work soon; called on the event loop. Raises RuntimeError when the machine has no thread for it."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._size < self._limit:
            self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"horae-task-{self._size + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if self._size == 0:  # no thread will take the work, which is the only one in the queue
                self._work.get_nowait()
                raise
            log.warning("thread_start_failed", threads=self._size)
            return
        with self._lock:
            self._size += 1

    def close(self) -> None:
        """Let idle threads end; busy ones end after their work, if that ends."""
        for _ in range(self._size):
            self._work.put(None)

    def _serve(self) -> None:
        while not self._surplus() and (work := self._next()) is not None:
            work()

    def _surplus(self) -> bool:
        """Whether this thread is one too many and ends."""
        with self._lock:
            surplus = self._size > self._limit and self._work.empty()
            self._size -= surplus
            return surplus

    def _next(self) -> Work | None:
        try:
            return self._work.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._work.get()


class ThreadAttempt(RunningAttempt):
    """An attempt of a function in a thread: it can be asked to stop, but not forced to."""

    _in_thread = True
    _progress: float | None = None  # reported by the thread, and not yet taken by the loop

    def start(self, params: str) -> None:
        try:
            self.env.threads.submit(lambda: self._work(params))
        except RuntimeError as exc:
            self.env.loop.call_soon(self.finish, failure_of(exc))

    def _work(self, params: str) -> None:
        if not self.enter():
            return
        if self.run.spec.policy.timeout is not None:
            self._on_loop(self.arm_timeout)
        result = Context().run(self._call, params)
        self._on_loop(lambda: self._returned(result))

    def _call(self, params: str) -> AttemptResult:
        current_run.set(self)
        try:
            if self.task.hooks.around_tasks:
                work = partial(self._perform, params)
                return self.task.hooks.run_around_sync(self.context(), work, self.hook_error, self._await_on_loop)
            return self._perform(params)
        except BaseException as exc:  # noqa: BLE001 - SystemExit ends the attempt, not the thread
            if (text := trace(exc)) is not None:
                self.log.write("ERROR", text)
            return failure_of(exc)

    def _perform(self, params: str) -> AttemptResult:
        arguments = {**self.task.bind(params), **self.injected()}
        try:
            return success(self.task.function(**arguments))
        finally:
            self.end_if_forked()

    def _await_on_loop(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Wait in the thread of the task for a coroutine in the event loop of the worker."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.env.loop).result()

    def hook_error(self, exc: BaseException) -> BaseException | None:
        """The same, but a function that has not noticed the request to stop has failed by itself."""
        return exc if self.stopping and not self.noticed_stop and not self._timed_out else super().hook_error(exc)

    def _returned(self, result: AttemptResult) -> None:
        """Report the result; it counts although a stop was requested, unless the function noticed the request."""
        self.let_go()
        self.finish(Stopped() if self.stopping and self.noticed_stop else result)

    def _ask_to_stop(self) -> None:
        """Do nothing more: `run.cancelled` is true from now on."""

    def _end_by_force(self) -> None:
        self.abandon()

    def _report_progress(self, fraction: float) -> None:
        waiting, self._progress = self._progress, fraction
        if waiting is None:  # however often the task reports, one call at a time waits for the loop
            self._on_loop(self._take_progress)

    def _take_progress(self) -> None:
        fraction, self._progress = self._progress, None
        if fraction is not None:
            self.progressed(fraction)

    def _on_loop(self, act: Callable[[], None]) -> None:
        try:
            self.env.loop.call_soon_threadsafe(act)
        except RuntimeError:  # the loop is closed: this is an abandoned task of a worker that has ended
            log.debug("task_outlived_worker", run=f"run_{self.run.id}")
