"""Errors as RFC 9457 problem documents: one shape for everything that goes wrong, and one table of status codes."""

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

_failures = LogThrottle()


class NotSupported(Invalid):
    """Part of the contract that this version does not have yet."""

    code = "not_supported"

    def __init__(self, what: str, *, pointer: str = "") -> None:
        super().__init__(f"{what} is not available yet", pointer=pointer)


class Unauthorized(HoraeError):
    """Not known who asks; `error` is what RFC 6750 calls it."""

    def __init__(self, detail: str, *, error: str | None = None) -> None:
        super().__init__(detail)
        self.headers = {"WWW-Authenticate": _challenge(error)}


class Forbidden(HoraeError):
    """Known who asks, and they may not; `scope` is what their token would need."""

    def __init__(self, detail: str, *, scope: str | None = None) -> None:
        super().__init__(detail)
        self.headers = {} if scope is None else {"WWW-Authenticate": _challenge("insufficient_scope", scope)}


class RateLimited(HoraeError):
    """Asked too often."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests; try again after {seconds} s")
        self.headers = {"Retry-After": str(seconds)}


def _challenge(error: str | None, scope: str | None = None) -> str:
    told = {"realm": "horae", "error": error, "scope": scope}
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in told.items() if value is not None)


STATUS: Sequence[tuple[type[HoraeError], int, str]] = (  # the first that fits; a code of its own wins over the third
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
    (Unavailable, 503, "unavailable"),
)


class Place(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    pointer: str
    detail: str


class Problem(msgspec.Struct, frozen=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[Place, ...] = ()


def problem_of(error: HoraeError) -> Problem:
    """What a user is told of an error that is part of the design."""
    for kind, status, code in STATUS:
        if isinstance(error, kind):
            faults = error.faults if isinstance(error, Invalid) else ()
            return new_problem(status, getattr(error, "code", code), str(error), faults)
    return _internal()


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The problem as an answer."""
    soon = problem.status in (429, 503) or problem.code == InFlight.code
    retry = {"Retry-After": str(RETRY_AFTER_SECONDS)} if soon else {}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type="application/problem+json",
        headers=retry | (headers or {}),
    )


def on_error(request: Request, error: HoraeError) -> Response:
    """Answer an error of ours."""
    problem = problem_of(error)
    if problem.status >= 500 and (unsaid := _failures.admit()) is not None:
        told = {"unsaid": unsaid} if unsaid else {}  # of a store that is down every request would tell
        log.warning("request_failed", method=request.method, path=request.url.path, error=str(error), **told)
    return problem_response(problem, getattr(error, "headers", None))


def on_http_error(request: Request, error: HTTPException) -> Response:
    """Answer what the router refuses: unknown routes and methods."""
    status = error.status_code
    details = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.url.path} does not answer {request.method}",
    }
    code = HTTPStatus(status).phrase.lower().replace(" ", "_")
    detail = details.get(status, error.detail)
    return problem_response(new_problem(status, code, detail), dict(error.headers or {}))


def on_surprise() -> Response:
    """Answer what nobody foresaw, without telling the outside what it was; the server logs it."""
    return problem_response(_internal())


def _internal() -> Problem:
    return new_problem(500, "internal", "something went wrong here; the server's log tells what")


def new_problem(status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> Problem:
    """A problem document."""
    return Problem(
        type=f"urn:horae:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        errors=tuple(Place(fault.pointer, fault.detail) for fault in faults),
    )
