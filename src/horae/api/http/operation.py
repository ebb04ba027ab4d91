"""Describes operations: the scope they need, what they accept and what they return.

The router enforces the scope and the OpenAPI document is generated from the rest, so neither can be forgotten.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter or header; `schema` is a type that msgspec can convert to a JSON schema."""

    name: str
    schema: Any
    description: str
    _: KW_ONLY
    place: str = "query"
    example: str | None = None


async def _no_handler(request: Request) -> Response:
    raise NotImplementedError("an operation needs a handler: use it as a decorator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The description of an operation, and its handler, which it decorates.

    The first line of the handler's docstring is the summary in OpenAPI.
    """

    scope: Scope | None  # None: needs no token
    tag: str
    answers: Mapping[int, Any]  # status → type of the body; None when it is not JSON; `Problem` for an error
    body: Any = None  # type of the request body; None when there is none
    params: tuple[Param, ...] = ()
    media: tuple[str, ...] = ("application/json",)  # of successful responses
    takes: tuple[str, ...] = ("application/json",)  # media types of the request body
    headers: tuple[str, ...] = ()  # of successful responses
    idempotent: bool = False  # honours Idempotency-Key
    listing: bool = False  # waits for a turn of its owner; without a body, because a slow sender would keep the turn
    handler: Handler = _no_handler

    def __call__(self, handler: Handler) -> "Operation":
        """Return the operation with its handler, to which `resource` can route."""
        return replace(self, handler=handler)

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of its query parameters; all others are refused."""
        return tuple(param.name for param in self.params if param.place == "query")


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
