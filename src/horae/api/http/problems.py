"""Converts errors to RFC 9457 problem documents, with one table of status codes."""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from horae.core.errors import (
    Conflict,
    Fault,
    Gone,
    HoraeError,
    InFlight,
    Invalid,
    Malformed,
    NotFound,
    RevisionChanged,
    TooLarge,
    Unavailable,
)
from horae.log_setup import LogThrottle

log = structlog.get_logger(__name__)

RETRY_AFTER_SECONDS = 1
QUOTA_RETRY_SECONDS = 10  # a count is at least some seconds old

_log_throttle = LogThrottle()


class NotSupported(Invalid):
    """An option that this version does not support yet."""

    code = "not_supported"

    def __init__(self, what: str, *, pointer: str = "") -> None:
        super().__init__(f"{what} is not available yet", pointer=pointer)


class Incomplete(Invalid):
    """A document from a list that left something out, sent back as if it were whole."""

    code = "incomplete"


class Unauthorized(HoraeError):
    """The request has no valid token; `error` is the error code of RFC 6750."""

    def __init__(self, detail: str, *, error: str | None = None) -> None:
        super().__init__(detail)
        self.headers = {"WWW-Authenticate": _challenge(error)}


class Forbidden(HoraeError):
    """The token does not allow the request; `scope` is the one that it lacks."""

    def __init__(self, detail: str, *, scope: str | None = None) -> None:
        super().__init__(detail)
        self.headers = {} if scope is None else {"WWW-Authenticate": _challenge("insufficient_scope", scope)}


class RateLimited(HoraeError):
    """The owner sent too many requests, or keeps too many in progress."""

    def __init__(self, seconds: int, detail: str = "too many requests") -> None:
        super().__init__(f"{detail}; try again after {seconds} s")
        self.headers = {"Retry-After": str(seconds)}


class OverQuota(HoraeError):
    """The owner would keep more than its quota allows; the message names the limit, the use and what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.headers = {"Retry-After": str(QUOTA_RETRY_SECONDS)}


def _challenge(error: str | None, scope: str | None = None) -> str:
    parts = {"realm": "horae", "error": error, "scope": scope}
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value is not None)


STATUS: Sequence[tuple[type[HoraeError], int, str]] = (  # the first match counts; an error's own `code` wins
    (RevisionChanged, 412, "revision_changed"),
    (Malformed, 400, "malformed"),
    (Unauthorized, 401, "unauthorized"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (Gone, 410, "gone"),
    (TooLarge, 413, "too_large"),
    (Invalid, 422, "invalid"),
    (RateLimited, 429, "rate_limited"),
    (OverQuota, 429, "quota_exceeded"),
    (Unavailable, 503, "unavailable"),
)


class Place(msgspec.Struct, frozen=True):
    """One error in a request, and a JSON pointer to the field."""

    pointer: str
    detail: str


class Problem(msgspec.Struct, frozen=True):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[Place, ...] = ()


def problem_of(error: HoraeError) -> Problem:
    """Return the problem document of an error."""
    for kind, status, code in STATUS:
        if isinstance(error, kind):
            faults = error.faults if isinstance(error, Invalid) else ()
            return new_problem(status, getattr(error, "code", code), str(error), faults)
    return _internal()


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """Return a problem document as a response."""
    retryable = problem.status in (429, 503) or problem.code == InFlight.code
    retry = {"Retry-After": str(RETRY_AFTER_SECONDS)} if retryable else {}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type="application/problem+json",
        headers=retry | (headers or {}),
    )


def on_error(request: Request, error: HoraeError) -> Response:
    """Return the response to an error of Horae, and log server errors within the log throttle."""
    problem = problem_of(error)
    if problem.status >= 500 and (suppressed := _log_throttle.admit()) is not None:
        counted = {"suppressed": suppressed} if suppressed else {}  # while a store is down, every request fails
        log.warning("request_failed", method=request.method, path=request.url.path, error=str(error), **counted)
    return problem_response(problem, getattr(error, "headers", None))


def on_http_error(request: Request, error: HTTPException) -> Response:
    """Return the response to an unknown route or method."""
    status = error.status_code
    details = {
        404: f"there is no route {request.url.path}",
        405: f"{request.url.path} does not support {request.method}",
    }
    code = HTTPStatus(status).phrase.lower().replace(" ", "_")
    detail = details.get(status, error.detail)
    return problem_response(new_problem(status, code, detail), dict(error.headers or {}))


def on_unexpected_error() -> Response:
    """Return the response to an unexpected error, without its details; the server logs them."""
    return problem_response(_internal())


def _internal() -> Problem:
    return new_problem(500, "internal", "an internal error occurred; see the server's log")


def new_problem(status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> Problem:
    """Return a problem document."""
    return Problem(
        type=f"urn:horae:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        errors=tuple(Place(fault.pointer, fault.detail) for fault in faults),
    )
