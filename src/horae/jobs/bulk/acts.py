"""Bulk acts: selects many jobs or runs, checks that each is permitted, then acts on them in chunks.

Chunks are small, so that nobody else waits long for a write; and a call ends early rather than late, with a cursor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from horae.core.errors import HoraeError, Unavailable
from horae.jobs.bulk.pages import Find, Item, ReadPage
from horae.ports.permits import Permit, permit_all

MAX_ITEMS = 10_000  # that one call acts on
CHUNK = 50  # items that are read, or changed, at once: a few milliseconds of the write lock
MAX_SECONDS = 10.0  # after which a call begins no further chunk; clients wait 30 s for an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkTally:
    """How many a call selected, and for how many of them the act succeeded."""

    matched: int
    done: int
    remaining: int  # selected and not done, with those that are left for further calls (counted up to 10,000)
    cursor: str | None  # continues the act; None when all that was selected has been looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAct(Generic[Item]):
    """What to select, and what to do with it; `perform` returns for how many it succeeded, and is safe to repeat.

    It raises Unavailable, or an error that refuses all of it before anything is changed.
    """

    read: ReadPage[Item]
    find: Find[Item]
    perform: Callable[[Sequence[Item]], Awaitable[int]]
    permit: Permit = permit_all


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """The ids of some selected items, and the cursor after them."""

    ids: Sequence[str]
    cursor: str | None


async def perform_bulk(act: BulkAct[Item], *, cursor: str | None = None, dry_run: bool = False) -> BulkTally:
    """Act on what is selected after the cursor; with `dry_run` only count it.

    Raises what `permit` raises for any of it, before anything is changed.
    """
    began = asyncio.get_running_loop().time()
    chunks, last = await _select(act.read, cursor, act.permit, until=began + MAX_SECONDS / 2)
    done, ended = (0, len(chunks)) if dry_run else await _perform(act, chunks, until=began + MAX_SECONDS)
    matched = sum(len(chunk.ids) for chunk in chunks[:ended])
    left = matched - done + sum(len(chunk.ids) for chunk in chunks[ended:])
    if last is not None:
        beyond, _ = await _select(act.read, last, permit_all, until=began + 2 * MAX_SECONDS)
        left += sum(len(chunk.ids) for chunk in beyond)
    following = last if ended == len(chunks) else chunks[ended - 1].cursor
    return BulkTally(matched=matched, done=done, remaining=left, cursor=following)


async def _select(
    read: ReadPage[Item], cursor: str | None, permit: Permit, *, until: float
) -> tuple[list[_Chunk], str | None]:
    """Return the next items as ids, so that none comes in after the last was permitted, and where they end."""
    chunks: list[_Chunk] = []
    count, clock = 0, asyncio.get_running_loop().time
    while count < MAX_ITEMS:
        page = await read(cursor, min(CHUNK, MAX_ITEMS - count))
        for item in page.items:
            permit(item.spec)
        cursor = page.cursor
        if page.items:
            chunks.append(_Chunk(ids=[item.id for item in page.items], cursor=cursor))
            count += len(page.items)
        if cursor is None or clock() > until:
            break
    return chunks, cursor


async def _perform(act: BulkAct[Item], chunks: Sequence[_Chunk], *, until: float) -> tuple[int, int]:
    """Act on chunks until the time is over; return for how many items it succeeded, and how many chunks that took.

    A chunk that is refused ends it, too: what is done stays done, and the next call is told why, from there on.
    """
    done, clock = 0, asyncio.get_running_loop().time
    for place, chunk in enumerate(chunks):
        if place and clock() > until:
            return done, place
        found = await act.find(chunk.ids)
        try:
            done += await act.perform([item for item in found if _is_permitted(item, act.permit)])
        except Unavailable:  # nobody knows whether the chunk was written: the same request again does what is left
            raise
        except HoraeError:
            if not place:
                raise
            return done, place
    return done, len(chunks)


def _is_permitted(item: Item, permit: Permit) -> bool:
    """Whether an item is still permitted: it may have been given another task since it was selected."""
    try:
        permit(item.spec)
    except HoraeError:
        return False
    return True
