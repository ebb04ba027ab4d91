"""Requests as values: what to send and how to decode the response.

Each method of the client is written once, as a function that returns a `Call`, `Pages`, or a generator of calls
(`Steps`); the synchronous and the asynchronous transport execute it.
"""

from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from horae.client.models import Page

T = TypeVar("T")

Scalar = str | int | float | bool | None
Query: TypeAlias = tuple[tuple[str, Scalar], ...]

PAGE = 200  # items per request when a list is iterated


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how its response is decoded."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Query = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True  # idempotent, so it may be sent again when the response was lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages(Generic[T]):
    """A list that is fetched page by page."""

    first: Call[Page[T]]

    def at(self, cursor: str) -> Call[Page[T]]:
        """Return the call for the page that starts at a cursor."""
        others = tuple(pair for pair in self.first.query if pair[0] != "cursor")
        return replace(self.first, query=(*others, ("cursor", cursor)))


Steps: TypeAlias = Generator[Call[Any], Any, T]  # several requests; later ones may depend on earlier responses


def get(path: str, kind: type[T], **query: Any) -> Call[T]:
    """Return a call that reads."""
    return Call(method="GET", path=path, read=_decoder(kind), query=_pairs(query))


def pages(path: str, kind: type[T], *, limit: int | None, cursor: str | None, **query: Any) -> Pages[T]:
    """Return the calls that read a list; `limit` is the size of a page."""
    return Pages(first=get(path, Page[kind], **query, limit=limit or PAGE, cursor=cursor))  # type: ignore[valid-type]


def change(
    method: str, path: str, kind: type[T], body: object = None, *, repeatable: bool = False, **query: Any
) -> Call[T]:
    """Return a call that changes something; only a `repeatable` one is sent again when its response was lost."""
    return Call(
        method=method,
        path=path,
        read=_decoder(kind),
        query=_pairs(query),
        body=None if body is None else msgspec.json.encode(body),
        repeatable=repeatable,
    )


def keyed(path: str, kind: type[T], body: object, key: str | None) -> Call[T]:
    """Return a POST with an Idempotency-Key, which makes it safe to send again; None generates a key."""
    return replace(
        change("POST", path, kind, body, repeatable=True), headers=(("Idempotency-Key", key or uuid4().hex),)
    )


def with_header(call: Call[T], name: str, value: str | None) -> Call[T]:
    """Return the call with one more header; a value of None adds none."""
    return call if value is None else replace(call, headers=(*call.headers, (name, value)))


def path_to(*segments: str) -> str:
    """Return a path below /v1; the segments may contain any characters."""
    return "/".join(("/v1", *(quote(segment, safe="") for segment in segments)))


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return _cached_decoder(kind).decode


@cache
def _cached_decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _pairs(query: Mapping[str, Any]) -> Query:
    """Return the parameters that are not None; a sequence repeats its name."""
    return tuple((name, _scalar(item)) for name, value in query.items() for item in _items(value))


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _scalar(value: Any) -> Scalar:
    return value.isoformat() if isinstance(value, datetime) else value
