"""JSON responses, and the shape of list pages."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

Item = TypeVar("Item")

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_ENCODER = msgspec.json.Encoder()


class PageView(msgspec.Struct, Generic[Item]):
    """One page of a list; pass `next_cursor` as `cursor` to get the next page. It is null on the last one.

    A page looks at a bounded number of rows. One that ended early for that has fewer items than `limit`, or none, and
    `searched_to`: the time down to which it has searched.
    """

    items: list[Item]
    next_cursor: str | None
    searched_to: datetime | msgspec.UnsetType = msgspec.UNSET


class JsonResponse(Response):
    """A JSON response that skips Starlette's general set-up of headers, which takes three times as long."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
            *[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        ]


def json_response(value: object, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    """Return a value as a JSON response."""
    return JsonResponse(_ENCODER.encode(value), status, headers)


def page_response(items: Sequence[object], cursor: str | None, searched_to: datetime | None = None) -> Response:
    """Return one page of a list as a JSON response; a `cursor` of None marks the last page."""
    ended_early = {} if searched_to is None else {"searched_to": searched_to}
    return json_response({"items": items, "next_cursor": cursor, **ended_early})


def location_header(request: Request, path: str) -> dict[str, str]:
    """Return the header Location for a path of this API, which may be mounted below a prefix."""
    return {"Location": f"{request.scope.get('root_path', '')}{path}"}
