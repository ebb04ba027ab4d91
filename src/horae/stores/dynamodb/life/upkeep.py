"""Nodes in DynamoDB: their heartbeats, and what they hold, also after they died."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ConditionFailed
from horae.core.lifecycle import HELD
from horae.core.model import NodeId, Run
from horae.ports.store import Beat
from horae.stores.dynamodb import times
from horae.stores.dynamodb.changes.writes import GRAVES
from horae.stores.dynamodb.claims.claim import AHEAD
from horae.stores.dynamodb.claims.rooms import DynamoRooms, entry_of, room_key
from horae.stores.dynamodb.database import DeleteItem, Range, counted
from horae.stores.dynamodb.gates import DynamoGates
from horae.stores.dynamodb.items import Item, moment, run_of, stamp, state_of, text, time_of
from horae.stores.dynamodb.lines import HELD_LONG, Hint
from horae.stores.dynamodb.small_items import NODES, node_key, node_of

PAGE = 1000  # hints that are read at once
EMPTY_FOR = 60.0  # seconds that nothing was found of a node that is gone, before it is forgotten
BEGINNING = ""


class DynamoUpkeep(DynamoGates, DynamoRooms):
    """The verbs of the store that nodes call for their upkeep."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._empty_since: dict[str, float] = {}  # nodes that are gone, of which nothing was found

    @counted
    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        values = {
            ":b": moment(now),
            ":u": {"N": str(running)},
            ":wa": {"N": str(wall_ahead // timedelta(microseconds=1))},
        }
        found = await self._nodes()
        known = found.get(node)
        if known is None:
            return None
        later = time_of(known["b"]) > now
        expression = f"SET {'' if later else '#b = :b, '}#u = :u, #wa = :wa"
        if later:
            del values[":b"]
        condition = {"ConditionExpression": "attribute_exists(#pk)"}
        try:
            found[node] = await self._db.update(self._db.names.meta, node_key(node), expression, values, **condition)
        except ConditionFailed:
            return None
        nodes = [node_of(item) for item in found.values()]
        self._clock.compare((each for each in nodes if each.id != node), now)
        alive = [each for each in nodes if each.beat_at >= now - dead_after]
        return Beat(nodes=sorted(alive, key=lambda each: (each.started_at, each.id)))

    async def _nodes(self) -> dict[str, Item]:
        items = await self._db.items(Range(table=self._db.names.meta, pk=("pk", NODES)))
        return {item["sk"]["S"]: item for item in items}

    # --- what nodes hold

    @counted
    async def held_by(self, node: NodeId, *, until: datetime) -> list[Run]:
        return [run async for run in self._held(until) if run.node == node and run.wake_at <= until]

    @counted
    async def orphans(self, *, limit: int) -> list[Run]:
        graves = await self._db.items(Range(table=self._db.names.meta, pk=("pk", GRAVES)))
        if not graves:
            return []
        nodes = await self._nodes()
        until = max(time_of(grave["to"]) if "to" in grave else time_of(grave["b"]) + AHEAD for grave in graves)
        found: list[Run] = []
        async for run in self._held(until):
            if run.node not in nodes:
                found.append(run)
                if len(found) == limit:
                    return found
        await self._forget(graves, {run.node for run in found})
        return found

    async def _forget(self, graves: Sequence[Item], found: Iterable[NodeId | None]) -> None:
        """Forget nodes that are gone, after nothing was found of them for a while: a slow claim may still come."""
        holders = set(found)
        for grave in graves:
            node = grave["sk"]["S"]
            if node in holders:
                self._empty_since.pop(node, None)
            elif times.steady() - self._empty_since.setdefault(node, times.steady()) > EMPTY_FOR:
                await self._db.write([DeleteItem(self._db.names.meta, {"pk": text(GRAVES), "sk": text(node)})])
                self._empty_since.pop(node, None)

    async def _held(self, until: datetime) -> AsyncIterator[Run]:
        """Everything that nodes hold of what wakes up to a moment: by the hints of all lanes, and of what runs long."""
        seen: set[str] = set()
        directory = await self._lines.directory()
        parts = [
            (f"{line.name}#{shard}", line.low)
            for line in directory.lanes
            if line.next <= stamp(until)
            for shard in range(line.shards)
        ]
        for part, low in [*parts, (f"{HELD_LONG}#0", BEGINNING)]:
            async for hints in self._hints(part, low, stamp(until)):
                wanted = [hint.ident for hint in hints if hint.ident not in seen]
                seen.update(wanted)
                for item in await self._rows(list(dict.fromkeys(wanted))):
                    if state_of(item) in HELD:
                        yield run_of(item)

    async def _hints(self, part: str, low: str, high: str) -> AsyncIterator[list[Hint]]:
        """Pages of hints of one shard."""
        while hints := await self._lines.read_part(part, low, high, limit=PAGE):
            yield hints
            if len(hints) < PAGE:
                return
            low = hints[-1].at + "0"

    async def _count_held(self, queue: str) -> None:
        """Fill the set of the runs that nodes hold of a queue that has a limit now."""
        nodes = await self._nodes()
        reach = [time_of(item["to"]) if "to" in item else time_of(item["b"]) + AHEAD for item in nodes.values()]
        if not reach:
            return
        held = [entry_of(run) async for run in self._held(max(reach)) if run.spec.queue == queue]
        if held:
            values = {":ids": {"SS": sorted(held)}}
            await self._db.update(self._db.names.meta, room_key(queue), "ADD #ids :ids", values)
