"""Gates in DynamoDB: who holds them, which runs are in them, and the wake-up of parked runs.

The members of the gate of a recurring job are `live` of the job, which each firing writes anyway. Those of every other
gate are items beside the holder, in the order of the gate.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ConditionFailed
from horae.core.decisions.gates import GateState
from horae.core.decisions.release import Rival, blocks_key, is_key_gate
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import NodeId, Run, State
from horae.core.values import replace
from horae.stores.dynamodb.base import DynamoBase
from horae.stores.dynamodb.database import DeleteItem, PutItem, Range, insert
from horae.stores.dynamodb.items import (
    Item,
    is_parked,
    live_of,
    moment,
    run_item,
    run_of,
    spread,
    stamp,
    text,
    text_of,
)
from horae.stores.dynamodb.lines import PARKED
from horae.stores.dynamodb.pending import PENDING, missing_runs

MARKED = "ct"  # the attribute of a run that another one was put in front of in the gate of their job
MAX_RIVALS = 50  # the first of a long line are enough to decide by
FRONT = 100  # members of a gate that are read; a run behind so many is blocked in any case

Place = tuple[datetime, str]  # of a run in its gate


def place_of(run: Run) -> Place:
    """The place of a run in its gate."""
    return run.due_at, run.id


def gate_key(gate: str) -> str:
    """The partition key of what is kept of a gate."""
    return f"gate#{gate}"


def holder_key(gate: str) -> Item:
    """The key of the holder of a gate."""
    return {"pk": text(gate_key(gate)), "sk": text("holder")}


def member_key(run: Run) -> Item:
    """The key of a run in its gate."""
    assert run.gate is not None
    return {"pk": text(gate_key(run.gate)), "sk": text(f"m#{stamp(run.due_at)}{run.id}")}


def member_item(run: Run) -> Item:
    """A run in its gate."""
    return member_key(run)


def is_item_gate(gate: str | None) -> bool:
    """Whether the members of a gate are items, as they are of all but those of recurring jobs."""
    return gate is not None and is_key_gate(gate)


class Gate:
    """What a claim reads of one gate: its holder, and the live runs and blocking dead letters in it, in order."""

    def __init__(
        self,
        holder: NodeId | None,
        members: Sequence[Run],
        parked: Iterable[str] = (),
        marked: Iterable[str] = (),
    ) -> None:
        self.holder = holder
        self.members = sorted(members, key=place_of)
        self.parked = frozenset(parked)
        self.marked = frozenset(marked)  # runs that others were put in front of

    def is_left_by(self, node: NodeId | None) -> bool:
        """Whether a node holds the gate without a run in it."""
        return self.holder == node and not any(run.node == node and run.state in HELD for run in self.members)

    @property
    def live(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.members if run.state not in FINAL]

    def holder_for(self, node: NodeId) -> NodeId | None:
        """Who holds the gate, as a node has to see it: whoever has a run in it holds it, whether it says so or not."""
        others = (run.node for run in self.live if run.state in HELD and run.node != node)
        return self.holder or next(others, None)

    def needs_no_holder(self, run: Run) -> bool:
        """Whether a run can be claimed without holding its gate: it is alone, and whoever comes before it marks it."""
        alone = self.holder is None and [other.id for other in self.live] == [run.id]
        return alone and not is_item_gate(run.gate) and run.id not in self.marked

    def state(self, run: Run, node: NodeId, taken: Iterable[str]) -> GateState:
        """How a waiting run finds the gate, for a node whose claim has taken some runs of it."""
        ours = set(taken)
        ahead = [other for other in self.members if place_of(other) < place_of(run)]
        return GateState(
            holder=self.holder_for(node),
            earlier_run=any(
                other.state not in FINAL and other.node != node and other.id not in ours for other in ahead
            ),
            dead_letter=any(other.state in FINAL for other in ahead),
        )

    def rivals(self, run: Run, node: NodeId) -> list[Rival]:
        """The runs ahead of a waiting run, dead letters first, and what other nodes hold."""
        ahead = [
            other
            for other in self.members
            if other.id != run.id and (place_of(other) < place_of(run) or (other.state in HELD and other.node != node))
        ]
        found = [
            Rival(
                id=other.id,
                job_id=other.job_id,
                started_at=None if other.state in FINAL else other.first_started_at,
                failed=other.state in FINAL,
            )
            for other in sorted(ahead, key=lambda other: (other.state not in FINAL, place_of(other)))
        ]
        return found[:MAX_RIVALS]


class DynamoGates(DynamoBase):
    """What the parts of the store do with gates."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._held_gates: dict[str, NodeId] = {}  # by nodes of this process
        self._strays: dict[str, NodeId] = {}  # gates that claims have met, of nodes that are gone

    async def _gate(self, gate: str, limit: int = FRONT) -> Gate:
        """Read a gate, consistently."""
        holder, found = await self._gate_items(gate, limit)
        members, parked, marked = [], [], []
        for item in await self._rows(found):
            run = run_of(item)
            if run.gate == gate and (run.state not in FINAL or blocks_key(run)):
                members.append(run)
                if is_parked(item):
                    parked.append(run.id)
                if MARKED in item:
                    marked.append(run.id)
        return Gate(holder, members, parked, marked)

    async def _gate_items(self, gate: str, limit: int) -> tuple[NodeId | None, list[str]]:
        """The holder of a gate, and the ids of what may be in it."""
        which = Range(table=self._db.names.meta, pk=("pk", gate_key(gate)), sk="sk")
        found, holder = [], None
        for item in await self._db.items(which, limit=limit + 1):
            if item["sk"]["S"] == "holder":
                holder = text_of(item, "nd")
            else:
                found.append(item["sk"]["S"][22:])
        if not is_key_gate(gate):
            found += await self._live_of_job(gate.removeprefix("job:"))
        return None if holder is None else NodeId(holder), list(dict.fromkeys(found))

    async def _live_of_job(self, job_id: str) -> list[str]:
        """The runs of a job that may not have ended; all of them have rows afterwards."""
        item = await self._db.get(self._db.names.jobs, {"job": text(job_id), "sk": text("job")})
        if item is None:
            return []
        await self._complete([item])
        return live_of(item)

    async def _complete(self, jobs: Sequence[Item]) -> None:
        """Write runs that jobs have fired and that have no rows yet: their planner is about to, or has crashed."""
        if not (pending := [item for item in jobs if PENDING in item]):
            return
        ids = [run.id for item in pending for run in missing_runs(item, ())]
        keys = [{"id": text(ident)} for ident in dict.fromkeys(ids)]
        rows = await self._db.batch_get(self._db.names.runs, keys, attributes=("id",))
        there = {row["id"]["S"] for row in rows}
        live = {ident for item in pending for ident in live_of(item)}
        missing = [run for item in pending for run in missing_runs(item, there) if run.id in live]
        await self._insert_fired(missing)

    async def _insert_fired(self, runs: Sequence[Run]) -> None:
        """Write runs that were fired, unless they are there."""
        if runs:
            shards = await self._owners.sub_shards(run.owner for run in runs)
            items = [run_item(run, spread(run.id, shards[run.owner])) for run in runs]
            await self._db.statements([insert(self._db.names.runs, item) for item in items])

    async def _rows(self, ids: Sequence[str]) -> list[Item]:
        return await self._db.batch_get(self._db.names.runs, [{"id": {"S": ident}} for ident in dict.fromkeys(ids)])

    async def _take_gate(self, gate: str, node: NodeId) -> bool:
        """Hold a gate that nobody else holds."""
        condition = {"ConditionExpression": "attribute_not_exists(#nd) OR #nd = :me"}
        try:
            await self._db.update(
                self._db.names.meta, holder_key(gate), "SET #nd = :me", {":me": text(node)}, **condition
            )
        except ConditionFailed:
            return False
        self._held_gates[gate] = node
        return True

    async def _free_gate(self, gate: str, node: NodeId) -> bool:
        """Let a gate go; False if the node does not hold it."""
        self._held_gates.pop(gate, None)
        body = {"TableName": self._db.names.meta, "Key": holder_key(gate), "ConditionExpression": "nd = :me"}
        try:
            await self._client.call("DeleteItem", {**body, "ExpressionAttributeValues": {":me": text(node)}})
        except ConditionFailed:
            return False
        return True

    async def _free_gates_of(self, node: NodeId) -> None:
        """Let go of all gates that a node of this process holds."""
        for gate in [gate for gate, holder in self._held_gates.items() if holder == node]:
            await self._free_gate(gate, node)

    async def _free_strays(self) -> int:
        """Free gates of nodes that are gone, which claims have met; returns how many."""
        strays, freed = self._strays, 0
        self._strays = {}
        for gate, node in strays.items():
            if (await self._gate(gate)).is_left_by(node):
                freed += await self._free_gate(gate, node)
            else:
                self._strays[gate] = node
        return freed

    async def _leave_gate(self, run: Run) -> None:
        """Take a run out of its gate, after it ended or was retracted."""
        if is_item_gate(run.gate):
            await self._db.write([DeleteItem(self._db.names.meta, member_key(run))])

    async def _wake_next(self, gate: str, at: datetime) -> datetime | None:
        """Let the first parked run of a gate be claimed again; returns when it wakes, None when none is parked."""
        found = await self._gate(gate)
        for run in found.members:
            if run.id in found.parked and run.state in WAITING:
                return await self._unpark(run, at)
        return None

    async def _unpark(self, run: Run, at: datetime) -> datetime | None:
        """Wake a parked run, its hint first; at once, for its old time may be below the floor of the claims."""
        woken = replace(run, wake_at=max(run.wake_at, at))
        await self._db.write(await self._lines.hints([woken]))
        values = {":w": moment(woken.wake_at), ":f": {"N": str(run.fence)}, ":s": text(run.state.value)}
        condition = "attribute_exists(#pk) AND #f = :f AND #s = :s"
        try:
            await self._db.update(
                self._db.names.runs,
                {"id": text(run.id)},
                "SET #w = :w REMOVE #pk",
                values,
                ConditionExpression=condition,
            )
        except ConditionFailed:
            return None
        await self._db.write([DeleteItem(self._db.names.due, _aside_key(run))])
        return woken.wake_at

    def _aside(self, run: Run) -> PutItem:
        return self._lines.aside(PARKED, run)


def _aside_key(run: Run) -> Item:
    return {"line": text(f"{PARKED}#0"), "at": text(stamp(run.due_at) + run.id)}


def is_waiting(item: Item, state: State) -> bool:
    """Whether a claim may take the run of an item: it waits, and is neither parked nor paused."""
    return state in WAITING and not is_parked(item) and "pz" not in item
