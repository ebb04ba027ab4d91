"""The possible results of an attempt, and how returned values and exceptions become results."""

import traceback
from datetime import timedelta

import msgspec

from horae.core.decisions.results import Failure
from horae.core.errors import Fatal, RetryAfter
from horae.core.model import JobError, Outcome
from horae.core.values import Value, replace
from horae.secrets.redaction import Redactor
from horae.tasks.errors import TaskFailure

MAX_MESSAGE = 10_000  # bytes that are kept of an error's message
MAX_TYPE = 200  # characters that are kept of its type's name
MAX_RESULT = 1_000_000  # bytes of JSON
_MAX_DELAY = timedelta(days=3653)


class Success(Value, frozen=True):
    """The task returned."""

    result: str | None = None  # JSON text; None when it returned nothing


class Stopped(Value, frozen=True):
    """The task was asked to stop, and did or was abandoned."""


AttemptResult = Success | Failure | Stopped

_NOTHING = Success()


class InvalidResult(Fatal):
    """The task returned what cannot be stored; a retry would not help."""


def success(value: object) -> Success:
    """Return the result for a returned value; raises InvalidResult if it cannot be stored."""
    if value is None:
        return _NOTHING
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        advice = "return plain data: numbers, text, lists, dicts, dataclasses, dates"
        raise InvalidResult(f"the task returned what JSON cannot hold ({exc}); {advice}") from exc
    if len(text) > MAX_RESULT:
        raise InvalidResult(f"the task returned {len(text)} bytes of JSON; at most {MAX_RESULT} are kept as a result")
    return Success(text)


def failure_of(exc: BaseException) -> Failure:
    """Return the failure for an exception."""
    retry_after = _delay(exc.seconds) if isinstance(exc, RetryAfter) else None
    error = JobError(type=cut(type(exc).__name__)[:MAX_TYPE], message=cut(_message(exc)))
    return Failure(error=error, fatal=isinstance(exc, Fatal), retry_after=retry_after)


def failure(type: str, message: str, *, fatal: bool = False) -> Failure:  # noqa: A002 - the field's name
    """Return a failure that Horae itself reports."""
    return Failure(error=JobError(type=type, message=cut(message)), fatal=fatal)


def timed_out(timeout: timedelta) -> Failure:
    """Return the failure of a task that took longer than its timeout."""
    message = f"it took longer than its timeout of {timeout.total_seconds():g} s"
    return Failure(error=JobError(type="timeout", message=message), outcome=Outcome.TIMEOUT)


def crashed(exit_code: int) -> Failure:
    """Return the failure of a task whose process died."""
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    return failure("crash", f"the process of the task {how} before the task returned")


def size_of(result: AttemptResult) -> int:
    """Return the characters of a result or an error."""
    match result:
        case Success(result=str(text)):
            return len(text)
        case Failure():
            return len(result.error.message)
    return 0


def redacted(result: AttemptResult, redactor: Redactor) -> AttemptResult:
    """Return the result without secret values."""
    match result:
        case Success(result=str(text)):
            try:
                return Success(redactor.json(text))
            except (RecursionError, ValueError) as exc:
                detail = f"the result cannot be searched for secrets, so it is not kept ({type(exc).__name__})"
                return failure("InvalidResult", f"{detail}; return something flatter", fatal=True)
        case Failure():
            error = replace(result.error, message=redactor.text(result.error.message))
            return replace(result, error=error)
    return result


def trace(exc: BaseException) -> str | None:
    """Return the traceback for the attempt's log; None for errors that a task raises on purpose."""
    if isinstance(exc, Fatal | RetryAfter | TaskFailure):
        return None
    try:
        return "".join(traceback.format_exception(exc, limit=-30)).rstrip()
    except BaseException as unprintable:  # noqa: BLE001 - formatting an exception may raise, too
        return f"{type(exc).__name__}, which cannot be printed: {type(unprintable).__name__}"


def cut(text: str) -> str:
    """Return the text as stores accept it: no NUL, no lone surrogates, at most MAX_MESSAGE bytes."""
    data = text[: 2 * MAX_MESSAGE].replace("\0", "").encode("utf-8", "replace")
    if len(data) <= MAX_MESSAGE:
        return data.decode()
    return data[: MAX_MESSAGE - 3].decode("utf-8", "ignore") + "…"


def _message(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException as unprintable:  # noqa: BLE001 - users' exceptions may do anything, also raise SystemExit
        return f"(its message cannot be printed: {type(unprintable).__name__})"


def _delay(seconds: object) -> timedelta | None:
    """Return the retry delay that a task requested; None if it is no duration: then the retry policy decides."""
    if isinstance(seconds, timedelta):
        return min(max(seconds, timedelta()), _MAX_DELAY)
    if not isinstance(seconds, int | float):
        return None
    if seconds != seconds:  # NaN
        return timedelta()
    return timedelta(seconds=min(max(seconds, 0), _MAX_DELAY.total_seconds()))
