"""What a route says about itself: who may use it, what it takes and what it answers.

The router enforces the scope, and the OpenAPI document is drawn from the rest, so neither can be forgotten or drift.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


class Scope(StrEnum):
    """What a token allows; `admin` allows everything but the shell, and for every owner."""

    READ = "jobs:read"
    WRITE = "jobs:write"
    SHELL = "shell"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A query parameter or header; `schema` is a type that msgspec can draw a JSON schema of."""

    name: str
    schema: Any
    description: str
    place: str = "query"
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A handler with its description; the first line of the handler's docstring is its summary."""

    handler: Handler
    scope: Scope | None  # None: open to everybody
    tag: str
    answers: Mapping[int, Any]  # status → type of the body; None for a body that is no JSON; `Problem` for a refusal
    body: Any = None  # type of the request's body; None when it takes none
    params: tuple[Param, ...] = ()
    media: tuple[str, ...] = ("application/json",)  # of the successful answers
    takes: tuple[str, ...] = ("application/json",)  # what a body may be sent as
    headers: tuple[str, ...] = ()  # of the successful answers
    idempotent: bool = False  # honours Idempotency-Key

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of its query parameters: all others are refused."""
        return tuple(param.name for param in self.params if param.place == "query")


def operation(
    *,
    scope: Scope | None,
    tag: str,
    answers: Mapping[int, Any],
    body: Any = None,
    params: tuple[Param, ...] = (),
    media: str | tuple[str, ...] = "application/json",
    takes: str | tuple[str, ...] = "application/json",
    headers: tuple[str, ...] = (),
    idempotent: bool = False,
) -> Callable[[Handler], Operation]:
    """Describe a handler, so that `resource` can route to it."""

    def describe(handler: Handler) -> Operation:
        return Operation(
            handler=handler,
            scope=scope,
            tag=tag,
            answers=answers,
            body=body,
            params=params,
            media=(media,) if isinstance(media, str) else media,
            takes=(takes,) if isinstance(takes, str) else takes,
            headers=headers,
            idempotent=idempotent,
        )

    return describe


def operation_of(request: Request) -> Operation:
    """The operation that a request asks for."""
    found: Operation = request.scope["horae.operation"]
    return found


def begin(request: Request, operation: Operation) -> None:
    """Let the handler of a request find its operation."""
    request.scope["horae.operation"] = operation


def header_values(request: Request, name: bytes) -> list[str]:
    """What the headers of a name in lower case say, as they came."""
    return [str(value, "latin-1") for key, value in request.scope["headers"] if key == name]
