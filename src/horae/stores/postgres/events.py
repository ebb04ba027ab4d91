"""Events in PostgreSQL: an outbox that is written with every change, and read as far as its order is settled.

Events are numbered when they are written and visible when they are committed, which may be in another order. They are
read only up to a number below which every transaction has ended, so that no reader misses one. Which transactions may
still commit an event is known exactly: they hold a lock of the table (see `event_horizon` in the schema). Long
transactions that write something else do not hold up the feed.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.errors import Unavailable
from horae.core.events import EventKind
from horae.ports.events import EventBatch
from horae.stores.common.listing import event_position, last_position_before
from horae.stores.postgres.connection.database import TIMEOUT, Database, Session

LOOKS = 5  # of one read, to see whether the writers of the moment are done
PAUSE = 0.005  # seconds between two looks: most transactions take less


class Horizon:
    """How far the order of events is settled.

    Each look sees the last number given out, and the transactions that may still commit a number up to it. When none of
    those is seen any more, everything up to that number is settled.
    """

    def __init__(self) -> None:
        self.settled = 0
        self._awaited: tuple[int, frozenset[str]] | None = None  # a number, and the writers that may still commit it

    def see(self, last: int, writers: frozenset[str]) -> None:
        """Add a look that is later than all before."""
        if not writers:
            self.settled, self._awaited = last, None
        elif self._awaited is None:
            self._awaited = (last, writers)
        elif writers.isdisjoint(self._awaited[1]):
            self.settled, self._awaited = self._awaited[0], (last, writers)


class PostgresEventLog:
    """Reads the outbox."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._horizon = Horizon()
        self._looking = asyncio.Lock()  # `see` must be called in the order of the looks

    async def read(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        since = 0 if after is None else event_position(after)
        async with self._db.session() as session:
            last = await self._look(session)
            for _ in range(LOOKS):
                if self._horizon.settled >= last:
                    break
                await asyncio.sleep(PAUSE)
                await self._look(session)
            if since > last:
                since = 0  # given out by a database that was set back since then
            name, whose = ("events_of_all", ()) if owner is None else ("events_of_owner", (owner,))
            found = await session.rows(name, since, self._horizon.settled, limit, *whose)
        return [_batch(row) for row in found]

    async def last(self, *, before: datetime | None = None) -> str:
        last = await self._settled()
        if before is None:
            return str(last)
        async with self._db.session() as session:

            async def first_after(position: int) -> datetime | None:
                found = await session.rows("events_of_all", position, last, 1)
                return _batch(found[0]).at if found else None

            return str(await last_position_before(before, last, first_after))

    async def _settled(self) -> int:
        """The last number given out, once everything up to it is committed."""
        try:
            async with asyncio.timeout(TIMEOUT), self._db.session() as session:
                last = await self._look(session)
                while self._horizon.settled < last:
                    await asyncio.sleep(PAUSE)
                    await self._look(session)
        except TimeoutError as exc:
            raise Unavailable("a transaction that writes an event does not end; try again") from exc
        return last

    async def _look(self, session: Session) -> int:
        """Look once; returns the last number given out."""
        async with self._looking:
            [(last, writers)] = await session.rows("event_horizon")
            self._horizon.see(last, frozenset(writers))
        return int(last)


def _batch(row: Sequence[Any]) -> EventBatch:
    return EventBatch(position=str(row[0]), kind=EventKind(row[1]), owner=row[2], at=row[3], subjects=row[4])
