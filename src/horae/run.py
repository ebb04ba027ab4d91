"""The run that a task receives: ids, times, log, progress and cancellation."""

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from horae.core import model

_LOCAL_LOG = logging.getLogger("horae.run")

WriteLog = Callable[[str, str], bool]  # takes level and text; False if the log is full


class CurrentRun(Protocol):
    """The run whose task runs here, as `logging` and waits for other runs know it."""

    def write_log(self, level: str, text: str) -> bool:
        """Write to the log of the run."""

    def lend_slot(self) -> model.Run | None:
        """Let others use the slot of the run while its task waits, and return the run; raises WaitRefused.

        None: the wait is in another event loop than that of the worker, so the slot cannot be lent.
        """

    def take_slot_back(self) -> None:
        """End one wait for which the slot was lent."""


current_run: ContextVar[CurrentRun] = ContextVar("horae_current_run")  # unset outside of tasks


class RunLog:
    """A logger for one attempt; keyword arguments are appended to the message as key=value."""

    __slots__ = ("_write",)

    def __init__(self, write: WriteLog) -> None:
        self._write = write

    def debug(self, message: object, *args: object, **values: object) -> None:
        self._write("DEBUG", _format(message, args, values))

    def info(self, message: object, *args: object, **values: object) -> None:
        self._write("INFO", _format(message, args, values))

    def warning(self, message: object, *args: object, **values: object) -> None:
        self._write("WARNING", _format(message, args, values))

    def error(self, message: object, *args: object, **values: object) -> None:
        self._write("ERROR", _format(message, args, values))

    def exception(self, message: object, *args: object, **values: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        text = _format(message, args, values)
        exc = sys.exception()
        self._write("ERROR", text if exc is None else f"{text}\n{''.join(traceback.format_exception(exc)).rstrip()}")

    def output(self, text: str) -> bool:
        """Log the output of a program; False if the log is full."""
        return self._write("OUT", text)


class Run:
    """The current attempt of a run, passed to its task."""

    __slots__ = (
        "_cancelled",
        "_params",
        "_progress",
        "attempt",
        "due_at",
        "fence",
        "id",
        "job_id",
        "log",
        "owner",
        "task",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the name that users know
        job_id: str,
        owner: str,
        params: str,
        task: str = "",
        due_at: datetime,
        attempt: int,
        fence: int,
        log: WriteLog,
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self.id = id
        self.job_id = job_id
        self.owner = owner
        self._params = params
        self.task = task
        self.due_at = due_at
        self.attempt = attempt
        self.fence = fence
        self.log = RunLog(log)
        self._progress = progress
        self._cancelled = cancelled

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the run as plain JSON data, without its secrets; a new copy each time."""
        params: dict[str, Any] = msgspec.json.decode(self._params)
        return params

    @property
    def cancelled(self) -> bool:
        """Whether the task should stop, because of a cancel request or its timeout."""
        return self._cancelled()

    def progress(self, fraction: float) -> None:
        """Report how much is done, from 0 to 1."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress must be a number from 0 to 1, not {fraction!r}")
        self._progress(float(fraction))


def local_run() -> Run:
    """Return the run for a task that is called as a plain function: it logs through `logging` and ignores progress."""
    return Run(
        id="run_local",
        job_id="job_local",
        owner=model.LOCAL,
        params="{}",
        due_at=datetime.fromtimestamp(time.time(), UTC),
        attempt=1,
        fence=0,
        log=_log_locally,
        progress=lambda fraction: None,
        cancelled=lambda: False,
    )


def _log_locally(level: str, text: str) -> bool:
    _LOCAL_LOG.log(logging.getLevelNamesMapping().get(level, logging.INFO), "%s", text)
    return True


def _format(message: object, args: tuple[object, ...], values: dict[str, object]) -> str:
    """Format a message as `logging` and structlog do; a wrong format string must not fail a run."""
    text = str(message)
    if args:
        try:
            text = text % args
        except (TypeError, ValueError):
            text = f"{text} {args!r}"
    return " ".join((text, *(f"{key}={_quoted(value)}" for key, value in values.items())))


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(char.isspace() or char in "=\"'" for char in text) else text
