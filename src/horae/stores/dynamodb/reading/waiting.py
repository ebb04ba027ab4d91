"""What waits in lanes and what nodes hold: by a bounded number of the hints of lanes, and the rows behind them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import NamedTuple

from horae.core.lifecycle import HELD
from horae.core.model import State
from horae.stores.dynamodb.database import Database, Range
from horae.stores.dynamodb.items import Item, is_parked, stamp, state_of, time_of
from horae.stores.dynamodb.lines import HELD_LONG, PARKED, Line, Lines
from horae.stores.dynamodb.reading.rows import RowReader

ROWS_AT_ONCE = 100  # as many as one BatchGetItem takes
MAX_LOOK = 20_000  # hints that one call looks at, with their rows
LEAST_LOOK = 100  # of one lane, however many there are
LANES_AT_ONCE = 16
_OUTLINE = ("id", "s", "d", "w", "q", "pr", "o", "pk", "pz")


class Outline(NamedTuple):
    """What counts of a run."""

    id: str
    state: State
    due_at: datetime
    wake_at: datetime
    queue: str
    owner: str
    is_paused: bool
    waits_in_lane: bool  # a claim may take it at its time

    @classmethod
    def of(cls, item: Item) -> "Outline":
        aside = is_parked(item) or "pz" in item
        return cls(
            id=item["id"]["S"],
            state=state_of(item),
            due_at=time_of(item["d"]),
            wake_at=time_of(item["w"]),
            queue=item["q"]["S"],
            owner=item["o"]["S"],
            is_paused="pz" in item,
            waits_in_lane=not aside and state_of(item) in (State.SCHEDULED, State.RETRYING),
        )


class WaitingRows:
    """Reads the rows behind hints."""

    def __init__(self, rows: RowReader, lines: Lines) -> None:
        self._rows = rows
        self._lines = lines

    @property
    def _db(self) -> Database:
        return self._rows.db

    async def held(self) -> list[Item]:
        """Return the rows of what nodes hold, and of what waits and is asked to stop.

        Runs are claimed in the order of their hints, so what is held is among the first of its lane.
        """
        lanes = [line for line in (await self._lines.directory()).lanes if line.lane is not None]
        look = max(MAX_LOOK // max(len(lanes), 1), LEAST_LOOK)
        gate = asyncio.Semaphore(LANES_AT_ONCE)

        async def of_lane(line: Line) -> list[str]:
            async with gate:
                return [hint.ident for hint in await self._lines.read(line, line.low, limit=look)]

        found = [
            *await asyncio.gather(*map(of_lane, lanes)),
            *[await self._aside(name) for name in (HELD_LONG, PARKED)],
        ]
        rows = await self._rows.runs(ident for idents in found for ident in idents)
        return [
            item for item in rows.values() if state_of(item) in HELD or "NULL" not in item.get("st", {"NULL": True})
        ]

    async def of_lane(self, line: Line, low: str, high: str, *, look: int) -> AsyncIterator[list[Outline]]:
        """Yield what is behind the hints of a lane from one stamp to another, some at a time; each run once."""
        high = after_stamp(high)
        seen: set[str] = set()
        looked = 0
        while looked < look and low < high:
            hints = await self._lines.read(line, low, high, limit=min(ROWS_AT_ONCE, look - looked))
            looked += len(hints)
            if fresh := {hint.ident for hint in hints} - seen:
                seen |= fresh
                yield await self.outlines(fresh)
            if len(hints) < ROWS_AT_ONCE:
                return
            low = f"{hints[-1].at}!"  # after this one

    async def aside(self, line: str) -> list[Outline]:
        """Return what is behind the hints of one of the lines that claims need not look at."""
        return await self.outlines(await self._aside(line))

    async def _aside(self, line: str) -> list[str]:
        return [hint.ident for hint in await self._lines.read_part(f"{line}#0", limit=MAX_LOOK)]

    async def outlines(self, idents: Iterable[str]) -> list[Outline]:
        """Return what counts of runs, as they are now."""
        keys = [{"id": {"S": ident}} for ident in dict.fromkeys(idents)]
        items = await self._db.batch_get(self._db.names.runs, keys, attributes=_OUTLINE)
        return [Outline.of(item) for item in items]

    async def count_after(self, line: Line, low: str, high: str, *, limit: int) -> int:
        """Count the hints of a lane after a key, up to a limit, without reading their rows."""
        ranges = [
            Range(
                table=self._db.names.due,
                pk=("line", f"{line.name}#{part}"),
                sk="at",
                low=low,
                high=after_stamp(high),
                attributes=("at",),
            )
            for part in range(line.shards)
        ]
        return sum(map(len, await asyncio.gather(*(self._db.items(which, limit=limit) for which in ranges))))


def after(moment: datetime) -> str:
    """Return the place of hints after everything at a time."""
    return after_stamp(stamp(moment))


def after_stamp(place: str) -> str:
    """Return the place of hints after everything at a stamp: ids are hexadecimal digits."""
    return f"{place}g"
