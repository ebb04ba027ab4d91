"""Tickets in PostgreSQL: what waits, by the time when it wakes, and what comes next in gates."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.model import JobId, RunId, shard_of
from horae.core.tickets import Ticket
from horae.ports.store import Waiting
from horae.stores.common.listing import Micros, decode_cursor, encode_cursor, micros_of, time_of
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import BEGINNING, LOWEST_ID


class PostgresTickets(PostgresBase):
    """The verbs of the store that fill a queue."""

    async def waiting(
        self,
        shards: Sequence[int],
        *,
        since: datetime | None,
        until: datetime,
        cursor: str | None,
        limit: int,
        gates: Sequence[str] | None = None,
    ) -> Waiting:
        wanted = frozenset(shards)
        if gates is not None:
            found = map(_ticket, await self._db.rows("next_in_gates", gates, since or BEGINNING, until))
            return Waiting(tickets=[each for each in found if shard_of(JobId(each.run_id)) in wanted], cursor=None)
        tickets, more = await self._page(since or BEGINNING, until, cursor, limit)
        return Waiting(tickets=[each for each in tickets if shard_of(JobId(each.run_id)) in wanted], cursor=more)

    async def _page(
        self, since: datetime, until: datetime, cursor: str | None, limit: int
    ) -> tuple[Sequence[Ticket], str | None]:
        """A page that ends between two instants, or within an instant that has more tickets than a page."""
        after = ""
        if cursor is not None:
            micros, after = decode_cursor(cursor, Micros, str)
            since = time_of(micros)
        if after:
            return await self._page_at(since, until, after, limit)
        tickets = list(map(_ticket, await self._db.rows("waiting", since, until, limit)))
        if len(tickets) < limit:
            return tickets, None
        last = tickets[-1].wake_at
        complete = [ticket for ticket in tickets if ticket.wake_at < last]
        if complete:
            return complete, encode_cursor(micros_of(last), "")
        return await self._page_at(last, until, LOWEST_ID, limit)

    async def _page_at(
        self, at: datetime, until: datetime, after: str, limit: int
    ) -> tuple[Sequence[Ticket], str | None]:
        tickets = list(map(_ticket, await self._db.rows("waiting_at", at, until, limit, after)))
        if len(tickets) == limit:
            return tickets, encode_cursor(micros_of(at), tickets[-1].run_id)
        return tickets, encode_cursor(micros_of(at) + 1, "")


def _ticket(row: Sequence[Any]) -> Ticket:
    ident, task, queue, priority, owner, wake_at = row
    return Ticket(run_id=RunId(ident), task=task, queue=queue, priority=priority, owner=owner, wake_at=wake_at)
