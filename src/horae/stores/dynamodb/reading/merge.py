"""Ranges of several partitions as one, in the order of their sort keys."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from horae.stores.dynamodb.database import Database, Range
from horae.stores.dynamodb.items import Item

LEAST_PAGE = 16  # entries that one query asks for; four kilobytes hold about 27 of them, which is half a read unit
MOST_PAGE = 1_000
AT_ONCE = 32  # partitions that are read at the same time


@dataclass(slots=True)
class _Stream:
    """One partition: what was read of it and not yet used."""

    which: Range
    key: str  # the attribute that it is sorted by
    size: int
    items: deque[Item] = field(default_factory=deque)
    after: Item | None = None
    begun: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.items and (self.after is not None or not self.begun)

    @property
    def head(self) -> str:
        return str(self.items[0][self.key]["S"])

    async def read(self, db: Database) -> None:
        """Read the next page; twice as much as the one before, for whoever reads on."""
        page = await db.page(self.which, limit=self.size, after=self.after)
        self.items.extend(page.items)
        self.after, self.begun = page.after, True
        self.size = min(2 * self.size, MOST_PAGE)


async def merged(db: Database, ranges: Sequence[Range], *, expect: int) -> AsyncIterator[Item]:
    """Yield the items of ranges with one sort key, in its order (that of the ranges, forward or backward).

    `expect` is how many the caller is likely to use: each partition is asked for its share first.
    """
    size = min(max(expect // max(len(ranges), 1) + 1, LEAST_PAGE), MOST_PAGE)
    streams = [_Stream(which, str(which.sk), size) for which in ranges]
    while True:
        await _fill(db, [stream for stream in streams if stream.is_empty])
        if any(stream.is_empty for stream in streams):
            continue  # a page may be empty and yet not be the last
        if not (full := [stream for stream in streams if stream.items]):
            return
        forward = full[0].which.forward
        first = min(full, key=lambda stream: stream.head) if forward else max(full, key=lambda stream: stream.head)
        # Most pages come from few partitions: whatever stands before the next of the others is used in one go.
        others = [stream.head for stream in full if stream is not first]
        bound = (min(others) if forward else max(others)) if others else None
        while first.items and (bound is None or (first.head <= bound if forward else first.head >= bound)):
            yield first.items.popleft()


async def _fill(db: Database, streams: Sequence[_Stream]) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def fill(stream: _Stream) -> None:
        async with gate:
            await stream.read(db)

    await asyncio.gather(*map(fill, streams))
