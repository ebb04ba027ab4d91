"""Sends what tasks write with `logging` to the logs of their runs."""

import logging
import traceback

import structlog

from horae.run import current_run

log = structlog.get_logger(__name__)


class RunLogHandler(logging.Handler):
    """Writes the records of a task to the log of its run, with their level and traceback.

    What code outside of tasks writes is left to the other handlers; if there is none, warnings become log events, as
    Python itself would print them.
    """

    def emit(self, record: logging.LogRecord) -> None:
        run = current_run.get(None)
        try:
            if run is not None:
                run.write_log(_level(record), _text(record))
            elif record.levelno >= logging.WARNING and logging.getLogger().handlers == [self]:
                log.log(record.levelno, _text(record), logger=record.name)
        except Exception:  # noqa: BLE001 - as for every handler, `logging` decides what becomes of a broken record
            self.handleError(record)


_handler = RunLogHandler()
_users = 0


def begin_capture() -> None:
    """Receive the records of `logging` in this process, until as many calls of `end_capture`."""
    global _users
    _users += 1
    logging.getLogger().addHandler(_handler)  # adds it once


def end_capture() -> None:
    """Undo one `begin_capture`."""
    global _users
    _users -= 1
    if _users == 0:
        logging.getLogger().removeHandler(_handler)


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return f"{text}\n{record.stack_info}" if record.stack_info else text


def _level(record: logging.LogRecord) -> str:
    name = record.levelname.upper()
    return name if name.isidentifier() else logging.getLevelName(round(record.levelno, -1))
