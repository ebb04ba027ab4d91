"""Pages of lists that are bounded by their bytes and their time: read in chunks, and cut where they cost too much."""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
from starlette.responses import Response

from horae.api.dispatch.responses import page_response
from horae.api.http.query import Query
from horae.ports.reader import Listing

CHUNK = 100  # items per read, so that only as many are whole in memory, each with a result of up to 1 MB
MAX_PAGE_BYTES = 8 * 1024 * 1024  # a page holds at least one item
MAX_PAGE_SECONDS = 0.05  # after which no further chunk is read

T = TypeVar("T")

Read = Callable[[str | None, int], Awaitable[Listing[T]]]  # of a cursor and a limit

_ENCODER = msgspec.json.Encoder()


async def bounded_page(
    query: Query, read: Read[T], view: Callable[[T], object], place: Callable[[T], datetime]
) -> Response:
    """Return the page that a query asks for, or its beginning if all of it would cost too much.

    `place` is the time by which the list is searched.
    """
    items: list[msgspec.Raw] = []
    cursor, limit, room = query.cursor, query.limit, MAX_PAGE_BYTES
    searched_to: datetime | None = None
    began = time.monotonic()
    while len(items) < limit:
        wanted = min(limit - len(items), CHUNK)
        found = await read(cursor, wanted)
        fitting = _fitting(found.items, view, room, at_least=0 if items else 1)
        items += fitting
        room -= sum(map(len, map(bytes, fitting)))
        if len(fitting) < len(found.items):
            if fitting:  # only the reader knows the cursor after an item: that of the page that ends with it
                cursor = (await read(cursor, len(fitting))).cursor
            break
        cursor, searched_to = found.cursor, found.searched_to
        if cursor is None or len(found.items) < wanted:
            break
        if len(items) < limit and time.monotonic() - began > MAX_PAGE_SECONDS:
            searched_to = place(found.items[-1])
            break
    return page_response(items, cursor, searched_to)


def _fitting(found: Sequence[T], view: Callable[[T], object], room: int, *, at_least: int) -> list[msgspec.Raw]:
    """Return the first items, encoded, that have room."""
    fitting: list[msgspec.Raw] = []
    for item in found:
        encoded = _ENCODER.encode(view(item))
        room -= len(encoded)
        if room < 0 and len(fitting) >= at_least:
            break
        fitting.append(msgspec.Raw(encoded))
    return fitting
