"""The child process of `cpu=True`: it runs tasks one after another, as its worker sends them over a pipe.

It dies with its worker: by the kernel where that is possible (Linux), and else when the pipe closes.
"""

import asyncio
import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import logging
import os
import queue
import signal
import sys
import threading
import time
from types import FrameType, ModuleType
from typing import Any

from horae.core.decisions.results import Failure
from horae.core.errors import WaitRefused
from horae.engine.execution import process_messages as messages
from horae.engine.execution.outcome import Success, failure_of, success, trace
from horae.engine.execution.task_logging import begin_capture
from horae.run import Run, current_run
from horae.tasks.registry import AnyTask, TaskFunction

PROGRESS_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_MAIN = "__mp_main__"  # the name that `multiprocessing`, too, gives a script outside its own process


class Terminated(BaseException):
    """Raised in the task when the process is asked to end, so that its `finally` clauses run."""


class Outbox:
    """Sends messages to the worker; tasks may report from any thread, but not from processes that they fork."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def ours(self) -> bool:
        """Whether this is the process that the worker started."""
        return os.getpid() == self._owner

    def send(self, message: messages.ChildMessage) -> None:
        """Write a message to the pipe."""
        assert self.ours  # two writers would garble the pipe, and report for runs that are not theirs
        data = memoryview(messages.framed(message))
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


class Reporter:
    """Sends what one task logs and reports: capped and thinned out here, so that a flood stays in this process."""

    def __init__(self, outbox: Outbox, log_limit: int) -> None:
        self._outbox = outbox
        self._room = log_limit
        self._reported_at = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Ignore what threads of the ended task still report: it would count for the next run here."""
        with self._lock:
            self._closed = True

    def lend_slot(self) -> None:
        """Refuse every wait: the process would stay occupied."""
        raise WaitRefused(
            "a cpu=True task cannot wait for other runs, because its process would be occupied; wait in an async task"
        )

    def take_slot_back(self) -> None:
        """Do nothing: no slot was lent."""

    def write_log(self, level: str, text: str) -> bool:
        """Send a line for the log; returns False when the log is full."""
        if self._room <= 0:
            return False
        self._send(messages.LogLine(level, text[: self._room + 1]))
        self._room -= len(text)
        return self._room > 0

    def progress(self, fraction: float) -> None:
        """Send progress, but not more often than PROGRESS_SECONDS."""
        now = time.monotonic()
        if fraction >= 1 or now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._send(messages.TaskProgress(fraction))

    def _send(self, message: messages.ChildMessage) -> None:
        if not self._outbox.ours:
            return  # checked before the lock, whose holder may not exist in a forked process
        with self._lock:
            if not self._closed:
                self._outbox.send(message)


def main() -> None:
    """Serve the worker whose process id is the argument."""
    inbox, outbox = _take_pipes()
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker to handle
    calls: queue.SimpleQueue[messages.TaskCall] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbox, calls), name="horae-inbox", daemon=True).start()
    with contextlib.suppress(Terminated):
        while True:
            _perform(calls.get(), Outbox(outbox))


def _perform(call: messages.TaskCall, outbox: Outbox) -> None:
    reporter = Reporter(outbox, call.log_limit)
    logging.getLogger().setLevel(call.log_level)
    begin_capture()
    current_run.set(reporter)
    outbox.send(messages.TaskBegan())
    try:
        result: Success | Failure = _run(_task(call), call, outbox, reporter)
    except Terminated:
        raise
    except BaseException as exc:  # noqa: BLE001 - SystemExit ends the attempt, not the process
        if (text := trace(exc)) is not None:
            reporter.write_log("ERROR", text)
        result = failure_of(exc)
    reporter.close()
    outbox.send(messages.TaskReturned(result.result) if isinstance(result, Success) else messages.TaskRaised(result))


def _run(task: AnyTask, call: messages.TaskCall, outbox: Outbox, reporter: Reporter) -> Success:
    """Call the task between its hooks; its coroutines share an event loop, which is started when there is one."""
    run = Run(
        id=call.run_id,
        job_id=call.job_id,
        owner=call.owner,
        params=call.params if call.shown_params is None else call.shown_params,
        task=task.name,
        due_at=call.due_at,
        attempt=call.attempt,
        fence=call.fence,
        log=reporter.write_log,
        progress=reporter.progress,
        cancelled=lambda: False,  # a request to stop comes as an exception
    )
    runner = asyncio.Runner()

    def work() -> Success:
        exit_code = 1
        try:
            value = task.function(**task.bind(call.params), **dict.fromkeys(task.injected, run))
            result = success(runner.run(_awaited(value)) if inspect.iscoroutine(value) else value)
            exit_code = 0
            return result
        finally:
            if not outbox.ours:
                os._exit(exit_code)  # the task forked, and this is its child returning, too

    try:
        if task.hooks.around_tasks:
            return task.hooks.run_around_sync(run, work, _hook_error, runner.run)
        return work()
    finally:
        runner.close()


def _hook_error(exc: BaseException) -> BaseException | None:
    return None if isinstance(exc, Terminated) else exc


async def _awaited(value: Any) -> object:
    return await value


def _task(call: messages.TaskCall) -> AnyTask:
    """Import the task as the worker did."""
    sys.path[:] = call.path
    if call.imported_first is not None:
        importlib.import_module(call.imported_first)
    module = importlib.import_module(call.module) if call.file is None else _script(call.file)
    found = getattr(module, call.function)
    return found if isinstance(found, TaskFunction) else TaskFunction[Any, Any](found)


def _script(file: str) -> ModuleType:
    if _MAIN not in sys.modules:
        spec = importlib.util.spec_from_file_location(_MAIN, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MAIN] = module
        spec.loader.exec_module(module)
    return sys.modules[_MAIN]


def _take_pipes() -> tuple[int, int]:
    """Reserve the pipes: what a task prints goes to the worker's standard error, and it reads nothing."""
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


def _die_with(worker: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before the kernel was asked
        _die()


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _read(inbox: int, calls: "queue.SimpleQueue[messages.TaskCall]") -> None:
    with os.fdopen(inbox, "rb") as pipe:
        while header := pipe.read(messages.HEADER.size):
            calls.put(messages.decode_call(pipe.read(*messages.HEADER.unpack(header))))
    _die()


if __name__ == "__main__":
    main()
