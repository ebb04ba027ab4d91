"""The errors that the client raises; each carries the problem document of the server.

HoraeError
├── Refused                  the server answered with a problem document
│   ├── RequestMalformed     400; also a Malformed
│   ├── Unauthenticated      401; the token is missing, expired or not accepted
│   ├── Forbidden            403; the token does not allow it
│   ├── Absent               404; also a NotFound
│   ├── InConflict           409; also a Conflict
│   ├── TooOld               410; the events after `last_event_id` are no longer kept
│   ├── Outdated             412; also a RevisionChanged: the job was changed in the meantime
│   ├── RequestTooLarge      413; also a TooLarge
│   ├── RequestInvalid       422; also an Invalid
│   ├── RateLimited          429, also after retries
│   └── ServerUnavailable    503, 502 or 504, also after retries; also an Unavailable
├── Unavailable              no response, or not from Horae
└── Misconfigured            HORAE_URL is not a URL
"""

from collections.abc import Mapping

import msgspec

from horae.client.models import Place, Problem
from horae.core.errors import (
    Conflict,
    Fault,
    HoraeError,
    Invalid,
    Malformed,
    NotFound,
    RevisionChanged,
    TooLarge,
    Unavailable,
)


class Refused(HoraeError):
    """The server answered with a problem document."""

    def __init__(self, problem: Problem, *, retry_after: float | None = None) -> None:
        Exception.__init__(self, problem.detail or problem.title or "the server refused the request")
        self.problem = problem
        self.status = problem.status
        self.code = problem.code
        self.errors: list[Place] = problem.errors
        self.faults = tuple(Fault(place.pointer, place.detail) for place in problem.errors)
        self.retry_after = retry_after  # seconds


class RequestMalformed(Refused, Malformed):
    """The server could not parse the request."""


class Unauthenticated(Refused):
    """The token is missing, expired or not accepted."""


class Forbidden(Refused):
    """The token does not allow the request."""


class Absent(Refused, NotFound):
    """The job or run does not exist, or belongs to another owner."""


class InConflict(Refused, Conflict):
    """The current state of the job or run does not allow the request."""


class TooOld(Refused):
    """The events after `last_event_id` are no longer kept; start again without it."""


class Outdated(Refused, RevisionChanged):
    """The job was changed since the revision in `if_match`."""


class RequestTooLarge(Refused, TooLarge):
    """The request exceeds a documented limit."""


class RequestInvalid(Refused, Invalid):
    """The request was parsed but is invalid; `errors` lists the fields."""


class RateLimited(Refused):
    """Too many requests were sent."""


class ServerUnavailable(Refused, Unavailable):
    """The server cannot process the request at the moment."""


_KINDS: Mapping[int, type[Refused]] = {
    400: RequestMalformed,
    401: Unauthenticated,
    403: Forbidden,
    404: Absent,
    409: InConflict,
    410: TooOld,
    412: Outdated,
    413: RequestTooLarge,
    422: RequestInvalid,
    429: RateLimited,
    502: ServerUnavailable,
    503: ServerUnavailable,
    504: ServerUnavailable,
}


def refusal(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """Return the error for an error response; one without a problem document comes from a proxy."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        problem = Problem(detail=f"the server answered {status} {phrase}".rstrip())
    known = msgspec.structs.replace(problem, status=status)
    return _KINDS.get(status, Refused)(known, retry_after=_seconds(headers.get("retry-after")))


def _seconds(text: str | None) -> float | None:
    """Return Retry-After in seconds; a date, which Horae never sends, is ignored."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
