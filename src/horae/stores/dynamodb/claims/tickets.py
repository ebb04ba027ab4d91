"""What a queue in front of a DynamoDB store needs: tickets of what waits, and of what is next in gates."""

import asyncio
import heapq
from collections.abc import Collection, Sequence
from datetime import datetime

from horae.core.lifecycle import WAITING
from horae.core.model import JobId, RunId, shard_of
from horae.core.tickets import Ticket
from horae.ports.store import Waiting
from horae.stores.common.listing import Ident, decode_cursor, encode_cursor
from horae.stores.dynamodb.database import counted
from horae.stores.dynamodb.gates import DynamoGates, is_waiting
from horae.stores.dynamodb.items import run_of, stamp, state_of
from horae.stores.dynamodb.lines import Hint, open_lanes


class DynamoTickets(DynamoGates):
    """The verbs of the store that tell of what waits."""

    @counted
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
            return await self._next_in_gates(gates, wanted, since, until)
        high, low = stamp(until), "" if since is None else stamp(since)
        if cursor is not None:
            wake, ident = decode_cursor(cursor, str, Ident)
            low = f"{wake}{ident}0"
        lanes = [line for line in open_lanes(await self._lines.directory(), ()) if line.next <= high]
        parts = await asyncio.gather(
            *(self._lines.read(line, max(low, line.low), high, limit=limit, of=wanted) for line in lanes)
        )
        hints: list[Hint] = heapq.nsmallest(limit, (hint for part in parts for hint in part), key=lambda hint: hint.at)
        mine = {hint.ident: hint for hint in hints if shard_of(JobId(hint.ident)) in wanted}
        able = [run_of(item) for item in await self._rows(list(mine)) if is_waiting(item, state_of(item))]
        waiting = {run.id: run for run in able if stamp(run.wake_at) == mine[run.id].at[:20]}
        more = encode_cursor(hints[-1].at[:20], hints[-1].ident) if len(hints) == limit else None
        tickets = [Ticket.of(waiting[RunId(ident)]) for ident in mine if ident in waiting]
        return Waiting(tickets=tickets, cursor=more)

    async def _next_in_gates(
        self, gates: Sequence[str], shards: Collection[int], since: datetime | None, until: datetime
    ) -> Waiting:
        """Tickets of the first run of each gate that can be claimed, if it wakes in time."""
        tickets = []
        for gate in await asyncio.gather(*map(self._gate, dict.fromkeys(gates))):
            able = (run for run in gate.live if run.state in WAITING and not run.paused and run.id not in gate.parked)
            run = next(able, None)
            if run is not None and run.wake_at <= until and (since is None or since <= run.wake_at):
                tickets.append(Ticket.of(run))
        return Waiting(tickets=[each for each in tickets if shard_of(JobId(each.run_id)) in shards], cursor=None)
