"""Requests as values: what to send and how to read the answer, whoever sends it.

A method of the client is written once, as a function that makes a `Call`, `Pages`, or a generator of calls (`Steps`);
the drivers of the synchronous and the asynchronous client carry them out.
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
S = TypeVar("S")

Scalar = str | int | float | bool | None
Query: TypeAlias = tuple[tuple[str, Scalar], ...]

PAGE = 200  # items that an iteration asks for at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Query = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True  # whether doing it twice is as good as once: what is sent again after a lost answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages(Generic[T]):
    """A list that comes page by page."""

    first: Call[Page[T]]

    def at(self, cursor: str) -> Call[Page[T]]:
        """The page after another."""
        others = tuple(pair for pair in self.first.query if pair[0] != "cursor")
        return replace(self.first, query=(*others, ("cursor", cursor)))


Steps: TypeAlias = Generator[Call[Any], Any, T]  # several requests, of which later ones may depend on earlier answers


def get(path: str, kind: type[T], **query: Any) -> Call[T]:
    """A read."""
    return Call(method="GET", path=path, read=_decoder(kind), query=_pairs(query))


def pages(path: str, kind: type[T], *, limit: int | None, cursor: str | None, **query: Any) -> Pages[T]:
    """A list; `limit` is the size of a page."""
    return Pages(first=get(path, Page[kind], **query, limit=limit or PAGE, cursor=cursor))  # type: ignore[valid-type]


def act(
    method: str, path: str, kind: type[T], body: object = None, *, repeatable: bool = False, **query: Any
) -> Call[T]:
    """A change that is not sent again when its answer is lost, unless doing it twice is as good as once."""
    return Call(
        method=method,
        path=path,
        read=_decoder(kind),
        query=_pairs(query),
        body=None if body is None else msgspec.json.encode(body),
        repeatable=repeatable,
    )


def keyed(path: str, kind: type[T], body: object, key: str | None) -> Call[T]:
    """A POST that creates: its Idempotency-Key makes it safe to send again."""
    return replace(act("POST", path, kind, body, repeatable=True), headers=(("Idempotency-Key", key or uuid4().hex),))


def with_header(call: Call[T], name: str, value: str | None) -> Call[T]:
    """The call with one more header; None leaves it as it is."""
    return call if value is None else replace(call, headers=(*call.headers, (name, value)))


def place(*segments: str) -> str:
    """A path below /v1, from segments that may hold anything."""
    return "/".join(("/v1", *(quote(segment, safe="") for segment in segments)))


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return _cached_decoder(kind).decode


@cache
def _cached_decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _pairs(query: Mapping[str, Any]) -> Query:
    """What is not None; a sequence repeats its name."""
    return tuple((name, _scalar(item)) for name, value in query.items() for item in _items(value))


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _scalar(value: Any) -> Scalar:
    return value.isoformat() if isinstance(value, datetime) else value
