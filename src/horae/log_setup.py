"""Log lines on stderr: text on a terminal and JSON elsewhere, unless HORAE_LOG says otherwise."""

import logging
import sys
import time
from collections.abc import Callable

import structlog

from horae.core.wording.printable import printable


def configure_logs(form: str = "", level: str = "info") -> None:
    """Configure structlog for this process: `form` is `text`, `json`, or empty for what suits where stderr goes."""
    on_terminal = sys.stderr.isatty() and form != "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _printable_values,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if on_terminal else "iso", utc=not on_terminal),
    ]
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(pad_event_to=24)]
        if on_terminal
        else [structlog.processors.format_exc_info, _machine_renderer(form)]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def accept_task_logs(level: str) -> None:
    """Let `logging` pass on what tasks write from this level on, unless users' code has configured it."""
    root = logging.getLogger()
    if root.level == logging.WARNING and not root.handlers:
        root.setLevel(level.upper())


def shows_banner(form: str) -> bool:
    """Return whether the output is a terminal and JSON logs are off."""
    return sys.stdout.isatty() and sys.stderr.isatty() and form != "json"


def _printable_values(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters in what others wrote, such as a task's error, because these lines reach terminals."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


def _machine_renderer(form: str) -> structlog.typing.Processor:
    if form == "text":
        return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)
    return structlog.processors.JSONRenderer()


class LogThrottle:
    """Lets one log line pass in so many seconds, and counts the others."""

    def __init__(self, *, seconds: float = 1.0, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._elapsed = elapsed
        self._last_at: float | None = None
        self._suppressed = 0

    def admit(self) -> int | None:
        """Return how many lines were suppressed since the last one, or None if this line is to be suppressed, too."""
        now = self._elapsed()
        if self._last_at is not None and now - self._last_at < self._seconds:
            self._suppressed += 1
            return None
        suppressed, self._suppressed, self._last_at = self._suppressed, 0, now
        return suppressed
