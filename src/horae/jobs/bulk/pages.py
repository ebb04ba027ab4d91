"""Pages of what a bulk act selects: by ids, or by one or several lists after each other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from horae.core.errors import Invalid
from horae.core.model import Job, Run
from horae.ports.reader import Listing

Item = TypeVar("Item", Job, Run)

ReadPage = Callable[[str | None, int], Awaitable[Listing[Item]]]  # of a cursor and a limit; a page may be empty
Find = Callable[[Sequence[str]], Awaitable[Sequence[Item]]]  # by ids; those that are absent are left out


def pages_of_ids(ids: Sequence[str], find: Find[Item]) -> ReadPage[Item]:
    """Return the pages of what has these ids; a cursor is a place among them."""
    distinct = [*dict.fromkeys(ids)]

    async def read(cursor: str | None, limit: int) -> Listing[Item]:
        start = 0 if cursor is None else _place(cursor, len(distinct))
        end = start + limit
        found = await find(distinct[start:end])
        return Listing(items=found, cursor=str(end) if end < len(distinct) else None)

    return read


def pages_of_lists(lists: Sequence[ReadPage[Item]]) -> ReadPage[Item]:
    """Return the pages of several lists, one list after another; a cursor begins with the place of its list."""

    async def read(cursor: str | None, limit: int) -> Listing[Item]:
        first, _, within = (cursor or "0.").partition(".")
        place = _place(first, len(lists))
        page = await lists[place](within or None, limit)
        if page.cursor is not None:
            return Listing(items=page.items, cursor=f"{place}.{page.cursor}")
        return Listing(items=page.items, cursor=f"{place + 1}." if place + 1 < len(lists) else None)

    return read


def _place(text: str, count: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(count)) and int(text) < count:
        return int(text)
    raise Invalid("the cursor is not one that this server gave out; start again without it", pointer="/cursor")
