"""Describes operations: the scope they need, what they accept and what they return.

The router enforces the scope and the OpenAPI document is generated from the rest, so neither can be forgotten.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


class Scope(StrEnum):
    """A permission of a token; `admin` includes all but `shell`, and applies to every owner."""

    READ = "jobs:read"
    WRITE = "jobs:write"
    SHELL = "shell"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A query parameter or header; `schema` is a type that msgspec can convert to a JSON schema."""

    name: str
    schema: Any
    description: str
    place: str = "query"
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A handler and its description; the first line of the handler's docstring is the summary in OpenAPI."""

    handler: Handler
    scope: Scope | None  # None: needs no token
    tag: str
    answers: Mapping[int, Any]  # status → type of the body; None when it is not JSON; `Problem` for an error
    body: Any = None  # type of the request body; None when there is none
    params: tuple[Param, ...] = ()
    media: tuple[str, ...] = ("application/json",)  # of successful responses
    takes: tuple[str, ...] = ("application/json",)  # media types of the request body
    headers: tuple[str, ...] = ()  # of successful responses
    idempotent: bool = False  # honours Idempotency-Key

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of its query parameters; all others are refused."""
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
    """Turn a handler into an operation, to which `resource` can route."""

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
    """Return the operation of a request."""
    found: Operation = request.scope["horae.operation"]
    return found


def set_operation(request: Request, operation: Operation) -> None:
    """Attach the operation to a request, for `operation_of`."""
    request.scope["horae.operation"] = operation


def header_values(request: Request, name: bytes) -> list[str]:
    """Return the values of all headers with a name, which must be in lower case."""
    return [str(value, "latin-1") for key, value in request.scope["headers"] if key == name]
