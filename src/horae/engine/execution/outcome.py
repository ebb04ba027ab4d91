"""What an attempt can end in, and how values and exceptions become that."""

import traceback
from datetime import timedelta

import msgspec

from horae.core.errors import Fatal, RetryAfter
from horae.core.model import JobError, Outcome
from horae.core.results import Failure
from horae.core.values import Value, replace
from horae.secrets.redaction import Redactor
from horae.tasks.errors import TaskFailure

MAX_MESSAGE = 10_000  # bytes of an error's message that are kept
MAX_TYPE = 200  # characters of the name of its type
MAX_RESULT = 1_000_000  # bytes of JSON
_MAX_DELAY = timedelta(days=3653)


class Success(Value, frozen=True):
    """The task returned."""

    result: str | None = None  # JSON text; None when it returned nothing


class Stopped(Value, frozen=True):
    """The task was asked to stop, and did or was left behind."""


AttemptResult = Success | Failure | Stopped

_NOTHING = Success()


def success(value: object) -> Success | Failure:
    """The result that a returned value stands for; one that cannot be kept is a failure that no retry mends."""
    if value is None:
        return _NOTHING
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        advice = "return plain data: numbers, text, lists, dicts, dataclasses, dates"
        return failure("InvalidResult", f"the task returned what JSON cannot hold ({exc}); {advice}", fatal=True)
    if len(text) > MAX_RESULT:
        detail = f"the task returned {len(text)} bytes of JSON; at most {MAX_RESULT} are kept as a result"
        return failure("InvalidResult", detail, fatal=True)
    return Success(text)


def failure_of(exc: BaseException) -> Failure:
    """The failure that an exception stands for."""
    retry_after = _delay(exc.seconds) if isinstance(exc, RetryAfter) else None
    error = JobError(type=cut(type(exc).__name__)[:MAX_TYPE], message=cut(_message(exc)))
    return Failure(error=error, fatal=isinstance(exc, Fatal), retry_after=retry_after)


def failure(type: str, message: str, *, fatal: bool = False) -> Failure:  # noqa: A002 - the field's name
    """A failure in Horae's own words."""
    return Failure(error=JobError(type=type, message=cut(message)), fatal=fatal)


def timed_out(timeout: timedelta) -> Failure:
    """The task took longer than it may."""
    message = f"it took longer than its timeout of {timeout.total_seconds():g} s"
    return Failure(error=JobError(type="timeout", message=message), outcome=Outcome.TIMEOUT)


def crashed(exit_code: int) -> Failure:
    """The process of the task died under it."""
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    return failure("crash", f"the process of the task {how} before the task returned")


def redacted(result: AttemptResult, redactor: Redactor) -> AttemptResult:
    """The result without secret values."""
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
    """The traceback for the attempt's log; None for what a task raises on purpose."""
    if isinstance(exc, Fatal | RetryAfter | TaskFailure):
        return None
    try:
        return "".join(traceback.format_exception(exc, limit=-30)).rstrip()
    except BaseException as unprintable:  # noqa: BLE001 - an exception whose text raises, too
        return f"{type(exc).__name__}, which cannot be printed: {type(unprintable).__name__}"


def cut(text: str) -> str:
    """The text as it can be kept: no NUL, no half characters, at most MAX_MESSAGE bytes."""
    data = text[: 2 * MAX_MESSAGE].replace("\0", "").encode("utf-8", "replace")
    if len(data) <= MAX_MESSAGE:
        return data.decode()
    return data[: MAX_MESSAGE - 3].decode("utf-8", "ignore") + "…"


def _message(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException as unprintable:  # noqa: BLE001 - users' exceptions may do anything, also leave
        return f"(its message cannot be printed: {type(unprintable).__name__})"


def _delay(seconds: object) -> timedelta | None:
    """The delay that a task asks for; None, which leaves it to the policy, when nobody can wait for that."""
    if isinstance(seconds, timedelta):
        return min(max(seconds, timedelta()), _MAX_DELAY)
    if not isinstance(seconds, int | float):
        return None
    if seconds != seconds:  # NaN
        return timedelta()
    return timedelta(seconds=min(max(seconds, 0), _MAX_DELAY.total_seconds()))
