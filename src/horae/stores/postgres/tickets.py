"""Tickets in PostgreSQL: what waits, by the time when it wakes, and what comes next in gates."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.model import JobId, RunId, shard_of
from horae.core.tickets import Ticket
from horae.ports.store import Waiting
from horae.stores.common.listing import Ident, Micros, decode_cursor, encode_cursor, micros_of, time_of
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
        after_at, after_id = BEGINNING, LOWEST_ID
        if cursor is not None:
            micros, after_id = decode_cursor(cursor, Micros, Ident)
            after_at = time_of(micros)
        rows = await self._db.rows("waiting", since or BEGINNING, until, after_at, after_id, limit)
        tickets = list(map(_ticket, rows))
        more = encode_cursor(micros_of(tickets[-1].wake_at), tickets[-1].run_id) if len(rows) == limit else None
        return Waiting(tickets=[each for each in tickets if shard_of(JobId(each.run_id)) in wanted], cursor=more)


def _ticket(row: Sequence[Any]) -> Ticket:
    ident, task, queue, priority, owner, wake_at = row
    return Ticket(run_id=RunId(ident), task=task, queue=queue, priority=priority, owner=owner, wake_at=wake_at)
