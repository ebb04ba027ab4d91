"""What the client raises: the errors of `horae.core.errors`, with what the server said.

HoraeError
├── Refused                  the server answered with a problem document
│   ├── RequestMalformed     400; also a Malformed
│   ├── Unauthenticated      401; the token is missing, expired or not accepted
│   ├── Forbidden            403; the token does not allow it
│   ├── Absent               404; also a NotFound
│   ├── InConflict           409; also a Conflict
│   ├── TooOld               410; what a stream should go on from is no longer kept
│   ├── Outdated             412; also a RevisionChanged: somebody changed the job first
│   ├── RequestTooLarge      413; also a TooLarge
│   ├── RequestInvalid       422; also an Invalid
│   ├── RateLimited          429, and waiting did not help
│   └── ServerUnavailable    503, 502 or 504, and waiting did not help; also an Unavailable
├── Unavailable              nobody answered, or somebody who is not Horae
└── Misconfigured            HORAE_URL is no address
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
        Exception.__init__(self, problem.detail or problem.title or "the server refused")
        self.problem = problem
        self.status = problem.status
        self.code = problem.code
        self.errors: list[Place] = problem.errors
        self.faults = tuple(Fault(place.pointer, place.detail) for place in problem.errors)
        self.retry_after = retry_after  # seconds


class RequestMalformed(Refused, Malformed):
    """The server could not parse it."""


class Unauthenticated(Refused):
    """The token is missing, expired or not accepted."""


class Forbidden(Refused):
    """The token does not allow it."""


class Absent(Refused, NotFound):
    """It does not exist, or belongs to another owner."""


class InConflict(Refused, Conflict):
    """It does not fit the state that it met."""


class TooOld(Refused):
    """What a stream should go on from is no longer kept; begin anew without `last_event_id`."""


class Outdated(Refused, RevisionChanged):
    """Somebody changed the job first."""


class RequestTooLarge(Refused, TooLarge):
    """It is above a documented limit."""


class RequestInvalid(Refused, Invalid):
    """It is understood but wrong; `errors` tells where."""


class RateLimited(Refused):
    """There were too many requests."""


class ServerUnavailable(Refused, Unavailable):
    """The server cannot do it at the moment."""


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
    """The error that an answer means; one that is no problem document comes from something in between."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        problem = Problem(detail=f"the server answered {status} {phrase}".rstrip())
    known = msgspec.structs.replace(problem, status=status)
    return _KINDS.get(status, Refused)(known, retry_after=_seconds(headers.get("retry-after")))


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; a date, which Horae never sends, counts as nothing said."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
