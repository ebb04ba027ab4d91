"""Pages of lists that are bounded by their bytes and by the rows that they look at: read in chunks, and cut."""

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

T = TypeVar("T")

Read = Callable[[str | None, int, int], Awaitable[Listing[T]]]  # of a cursor, a limit, and the number of reads

_ENCODER = msgspec.json.Encoder()


async def bounded_page(query: Query, read: Read[T], view: Callable[[T], object]) -> Response:
    """Return the page that a query asks for, or its beginning if all of it would cost too much.

    All reads of a page together look at a bounded number of rows, so each is told how many there are.
    """
    items: list[msgspec.Raw] = []
    cursor, limit, room = query.cursor, query.limit, MAX_PAGE_BYTES
    searched_to: datetime | None = None
    reads = -(-limit // CHUNK)  # rounded up
    for _ in range(reads):
        found = await read(cursor, min(limit - len(items), CHUNK), reads)
        fitting = _fitting(found.items, view, room, at_least=0 if items else 1)
        items += fitting
        room -= sum(map(len, map(bytes, fitting)))
        if len(fitting) < len(found.items):
            cursor, searched_to = await _cursor_after(len(fitting), cursor, read, reads), None
            break
        cursor, searched_to = found.cursor, found.searched_to
        if cursor is None or len(items) >= limit:
            break
    return page_response(items, cursor, searched_to)


async def _cursor_after(count: int, cursor: str | None, read: Read[T], reads: int) -> str | None:
    """Return the cursor after some items; only the reader knows it: that of the page that ends with them."""
    while count:
        page = await read(cursor, count, reads)
        cursor, count = page.cursor, count - len(page.items)
    return cursor


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
