"""What a queue in front of a DynamoDB store needs: tickets of what waits, and of what is next in gates."""

import asyncio
import heapq
from collections.abc import Sequence
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
        self, shards: Sequence[int], *, since: datetime | None, until: datetime, cursor: str | None, limit: int
    ) -> Waiting:
        wanted = frozenset(shards)
        high = stamp(until)
        low = None if since is None else stamp(since)
        if cursor is not None:
            wake, ident = decode_cursor(cursor, str, Ident)
            low = f"{wake}{ident}0"
        lanes = [line for line in open_lanes(await self._lines.directory(), ()) if line.next <= high]
        parts = await asyncio.gather(
            *(self._lines.read(line, max(low or "", line.low), high, limit=limit) for line in lanes)
        )
        hints: list[Hint] = heapq.nsmallest(limit, (hint for part in parts for hint in part), key=lambda hint: hint.at)
        mine = {hint.ident: hint for hint in hints if shard_of(JobId(hint.ident)) in wanted}
        waiting = {
            run.id: run
            for item in await self._rows(list(mine))
            if is_waiting(item, state_of(item))
            and stamp((run := run_of(item)).wake_at) == mine[item["id"]["S"]].at[:20]
        }
        more = encode_cursor(hints[-1].at[:20], hints[-1].ident) if len(hints) == limit else None
        tickets = [Ticket.of(waiting[RunId(ident)]) for ident in mine if ident in waiting]
        return Waiting(tickets=tickets, cursor=more)

    @counted
    async def next_in_gates(self, gates: Sequence[str], *, until: datetime) -> list[Ticket]:
        found = await asyncio.gather(*map(self._gate, gates))
        tickets = []
        for gate in found:
            able = [run for run in gate.live if run.state in WAITING and not run.paused and run.id not in gate.parked]
            if able and able[0].wake_at <= until:
                tickets.append(Ticket.of(able[0]))
        return tickets
