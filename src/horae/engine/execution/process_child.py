"""The other side of `cpu=True`: a process that runs one task after another, as its worker tells it over a pipe.

It dies with its worker: by the kernel where that can be asked for it (Linux), and else when the pipe closes.
"""

import asyncio
import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from types import FrameType, ModuleType
from typing import Any

import msgspec

from horae.core.results import Failure
from horae.engine.execution.outcome import Success, failure_of, success, trace
from horae.run import Run
from horae.tasks.registry import AnyTask, TaskFunction

HEADER = struct.Struct("!I")
MAX_MESSAGE = 16_000_000  # bytes; a line of the log and a result are shorter
PROGRESS_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_MAIN = "__mp_main__"  # the name that `multiprocessing` gives a script outside its own process, too


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A task to run, and all there is to know about it."""

    path: list[str]
    module: str
    file: str | None  # of a script, whose module cannot be imported by name
    function: str
    params: str
    run_id: str
    job_id: str
    due_at: datetime
    attempt: int
    fence: int
    log_limit: int


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The process is up and turns to the task."""


class Line(msgspec.Struct, frozen=True, tag="line"):
    """Something for the log."""

    level: str
    text: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How much is done."""

    fraction: float


class Succeeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """The task returned."""

    result: str | None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The task raised."""

    failure: Failure


Message = Began | Line | Progress | Succeeded | Failed

encode = msgspec.msgpack.Encoder().encode
decode_message: Callable[[bytes], Message] = msgspec.msgpack.Decoder(Message).decode
decode_work = msgspec.msgpack.Decoder(Work).decode


def framed(message: object) -> bytes:
    """A message as it goes over the pipe."""
    data = encode(message)
    return HEADER.pack(len(data)) + data


class Terminated(BaseException):
    """Raised in the task when the process is told to end, so that its `finally` clauses are run."""


class Outbox:
    """The way back to the worker; tasks may report from any thread, but not from processes that they fork."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def ours(self) -> bool:
        """Whether this is the process that the worker started."""
        return os.getpid() == self._owner

    def send(self, message: Message) -> None:
        assert self.ours  # two that write to one pipe would garble it, and speak for runs that are not theirs
        data = memoryview(framed(message))
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


class Reporter:
    """What one task reports: capped and thinned out here, so that a flood stays in this process."""

    def __init__(self, outbox: Outbox, log_limit: int) -> None:
        self._outbox = outbox
        self._room = log_limit
        self._reported_at = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """The task has ended: what its threads still say belongs to nobody, least of all to the next run here."""
        with self._lock:
            self._closed = True

    def log(self, level: str, text: str) -> bool:
        if self._room <= 0:
            return False
        self._send(Line(level, text[: self._room + 1]))
        self._room -= len(text)
        return self._room > 0

    def progress(self, fraction: float) -> None:
        now = time.monotonic()
        if fraction >= 1 or now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._send(Progress(fraction))

    def _send(self, message: Message) -> None:
        if not self._outbox.ours:
            return  # before the lock, which nobody may be there to open
        with self._lock:
            if not self._closed:
                self._outbox.send(message)


def main() -> None:
    """Serve the worker whose process id is the argument."""
    inbox, outbox = _take_pipes()
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to interpret
    work: queue.SimpleQueue[Work] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, work), name="horae-inbox", daemon=True).start()
    with contextlib.suppress(Terminated):
        while True:
            _perform(work.get(), Outbox(outbox))


def _perform(work: Work, outbox: Outbox) -> None:
    reporter = Reporter(outbox, work.log_limit)
    outbox.send(Began())
    try:
        result = success(_call(_task(work), work, reporter))
    except Terminated:
        raise
    except BaseException as exc:  # noqa: BLE001 - SystemExit ends the attempt, not the process
        if (text := trace(exc)) is not None:
            reporter.log("ERROR", text)
        result = failure_of(exc)
    if not outbox.ours:
        os._exit(0 if isinstance(result, Success) else 1)  # the task forked, and its child came back from it, too
    reporter.close()
    outbox.send(Succeeded(result.result) if isinstance(result, Success) else Failed(result))


def _call(task: AnyTask, work: Work, reporter: Reporter) -> object:
    arguments = task.bind(work.params)
    run = Run(
        id=work.run_id,
        job_id=work.job_id,
        due_at=work.due_at,
        attempt=work.attempt,
        fence=work.fence,
        log=reporter.log,
        progress=reporter.progress,
        cancelled=lambda: False,  # a request to stop arrives as an exception
    )
    value = task.function(**arguments, **dict.fromkeys(task.injected, run))
    return asyncio.run(_awaited(value)) if inspect.iscoroutine(value) else value


async def _awaited(value: Any) -> object:
    return await value


def _task(work: Work) -> AnyTask:
    """Import the task as the worker did."""
    sys.path[:] = work.path
    module = importlib.import_module(work.module) if work.file is None else _script(work.file)
    found = getattr(module, work.function)
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
    """Keep the pipes for ourselves: what a task prints goes to the worker's error output, and it reads nothing."""
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


def _die_with(worker: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before we asked
        _die()


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _listen(inbox: int, work: "queue.SimpleQueue[Work]") -> None:
    with os.fdopen(inbox, "rb") as pipe:
        while header := pipe.read(HEADER.size):
            work.put(decode_work(pipe.read(*HEADER.unpack(header))))
    _die()


if __name__ == "__main__":
    main()
