"""Claims in DynamoDB: the directory, hints of due lanes, the rows, and conditional updates that raise the fences."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ConditionFailed
from horae.core.decisions.fairness import MAX_LANES, Rooms
from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Run, RunId, State
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Claims
from horae.stores.dynamodb import times
from horae.stores.dynamodb.claims.rooms import DynamoRooms
from horae.stores.dynamodb.claims.scan import Scan, Source, Spent, by_gate
from horae.stores.dynamodb.database import ConditionalStatement, Did, PutItem, change, counted
from horae.stores.dynamodb.gates import MARKED, DynamoGates, Gate, is_item_gate, is_waiting
from horae.stores.dynamodb.items import Item, moment, run_of, stamp, state_of, text, time_of
from horae.stores.dynamodb.lines import Directory, Line, open_lanes
from horae.stores.dynamodb.small_items import node_key
from horae.stores.dynamodb.sparing import SparingRead

REMEMBER_SPENT = 60.0  # seconds
ROUNDS = 4  # of one claim, when others are quicker
AHEAD = timedelta(minutes=5)  # how far ahead of its heartbeat a node claims without saying so in its row


class DynamoClaim(DynamoGates, DynamoRooms):
    """The verb of the store that claims."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        self._node_rows: dict[NodeId, SparingRead[Item | None]] = {}
        self._spent = Spent()
        self._spent_since = times.steady()
        self._looks = Counter[str]()  # at lanes that had nothing to claim

    @counted
    async def claim(self, request: ClaimRequest) -> Claims:
        node, directory = await asyncio.gather(self._node_row(request.node), self._lines.recent_directory())
        if node is None:
            return Claims(alive=False)
        await self._reach(node, request)
        if times.steady() - self._spent_since > REMEMBER_SPENT:
            self._spent_since = times.steady()
            self._spent.forget()
        if request.among is not None:
            return await self._claim_among(request, request.among, directory)
        return await self._claim_due(request, directory)

    async def _node_row(self, node: NodeId) -> Item | None:
        """Return the row of the node that claims, or None when it is gone."""
        if node not in self._node_rows:  # a node that comes back has a new id
            self._node_rows = {node: SparingRead(lambda: self._db.get(self._db.names.meta, node_key(node)))}
        return await self._node_rows[node].get()

    async def _claim_due(self, request: ClaimRequest, directory: Directory) -> Claims:
        lanes = open_lanes(directory, request.queues)
        until = f"{stamp(request.until)}g"
        due, beyond = self._due(lanes, until)
        runs: list[Run] = []
        for _ in range(ROUNDS):
            scan = await self._scan(request, directory, (line.lane.queue for line in due if line.lane))
            await scan.take(due)
            taken = await self._take(scan, directory)
            runs += taken
            if len(taken) == len(scan.taken) or any(run.gate for run in scan.taken):
                break  # nobody else was quicker, or the gates decide who is next
            request = replace(request, limit=request.limit - len(taken))
        for line in due:
            self._looks[line.name] = 0 if line.lane in scan.gave else self._looks[line.name] + 1
        await self._let_go(request, scan)
        more = scan.more or (beyond and len(runs) > 0) or len(taken) < len(scan.taken)
        return Claims(
            runs=runs,
            contested=scan.contested,
            more=more,
            next_at=None if more else await self._next_at(scan, lanes, until),
            lined_up_at=scan.gates.next_at,
            left=await scan.left(),
        )

    async def _claim_among(self, request: ClaimRequest, run_ids: Sequence[RunId], directory: Directory) -> Claims:
        items = await self._rows(list(dict.fromkeys(run_ids)))
        waiting = [run_of(item) for item in items if is_waiting(item, state_of(item))]
        scan = await self._scan(request, directory, (run.spec.queue for run in waiting))
        await scan.take_among(waiting)
        runs = await self._take(scan, directory)
        await self._let_go(request, scan)
        told = {run.id for run in scan.taken} | {item.run.id for item in scan.contested}
        return Claims(
            runs=runs,
            contested=scan.contested,
            lined_up_at=scan.gates.next_at,
            waiting={run.id: run.wake_at for run in waiting if run.id not in told},
        )

    async def _reach(self, node: Item, request: ClaimRequest) -> None:
        """Note in the row of a node that it claims far ahead: its runs are looked for up to there when it dies."""
        if request.until > _reach(node):
            values = {":to": moment(request.until)}
            condition = "attribute_exists(#pk) AND (attribute_not_exists(#to) OR #to < :to)"
            try:
                await self._db.update(
                    self._db.names.meta, node_key(request.node), "SET #to = :to", values, ConditionExpression=condition
                )
            except ConditionFailed:
                return  # another claim has noted more, or the node is gone: then its runs are found as orphans

    def _due(self, lanes: Sequence[Line], until: str) -> tuple[list[Line], bool]:
        """The lanes that may have something to claim, and whether there are more than one claim looks into.

        Of very many, owners take turns, and of each owner come by turns those that were not looked into in vain, and
        those that have just become due.
        """
        due = [line for line in lanes if line.next <= until and line.lane is not None]
        if len(due) <= MAX_LANES:
            return due, False
        random.shuffle(due)
        patient = sorted(due, key=lambda line: self._looks[line.name])
        fresh = sorted(due, key=lambda line: line.next, reverse=True)
        turns = Counter[tuple[int, str]]()
        places: dict[str, tuple[int, int]] = {}
        for line in chain.from_iterable(zip(patient, fresh, strict=True)):
            if line.lane is not None and line.name not in places:
                of = (line.lane.priority, line.lane.owner)
                places[line.name] = (-line.lane.priority, turns[of])
                turns[of] += 1
        due.sort(key=lambda line: places[line.name])
        return due[:MAX_LANES], True

    async def _scan(self, request: ClaimRequest, directory: Directory, queues: Iterable[str]) -> Scan:
        rooms = Rooms(await self._rooms(directory.settings, queues))

        async def gates(names: Iterable[str]) -> dict[str, Gate]:
            return await self._gates(names, request)

        async def complete(job_ids: Sequence[str]) -> None:
            keys = [{"job": text(job_id), "sk": text("job")} for job_id in job_ids]
            await self._complete(await self._db.batch_get(self._db.names.jobs, keys))

        source = Source(lines=self._lines, rows=self._rows, gates=gates, spent=self._spent, complete=complete)
        return Scan(source=source, request=request, settings=directory.settings, rooms=rooms)

    async def _gates(self, names: Iterable[str], request: ClaimRequest) -> dict[str, Gate]:
        """Read gates, and note those of nodes that are gone: upkeep frees them."""
        wanted = list(names)
        found = dict(zip(wanted, await asyncio.gather(*map(self._gate, wanted)), strict=True))
        holders = {gate.holder for gate in found.values() if gate.holder not in (None, request.node)}
        there = await self._db.batch_get(self._db.names.meta, [node_key(each) for each in holders if each])
        nodes = {item["sk"]["S"] for item in there}
        for name, gate in found.items():
            if gate.holder is not None and gate.holder != request.node and gate.holder not in nodes:
                self._strays[name] = gate.holder
        return found

    async def _take(self, scan: Scan, directory: Directory) -> list[Run]:
        """Claim what was selected: its place in limited queues first, then its gates, then the runs."""
        node = scan.request.node
        shut_out = await self._enter_rooms(directory.settings, scan.taken)
        runs = [run for run in scan.taken if run.id not in shut_out]
        shut = await self._enter_gates(scan, runs)
        wanted = [run for run in runs if run.id not in shut]
        claimed = await self._claim_runs(node, wanted)
        ours = {run.id for run in claimed}
        await self._leave_unclaimed([run for run in runs if run.id not in ours])
        await self._free_unused(scan, claimed)
        rows = [{"pk": text(f"stop#{node}"), "sk": text(run.id)} for run in claimed if run.stop]
        stops = [PutItem(self._db.names.meta, row) for row in rows]
        await self._db.write(stops)
        return claimed

    async def _enter_gates(self, scan: Scan, runs: Sequence[Run]) -> set[str]:
        """Hold the gates of runs; returns the runs that may not pass after all."""
        node = scan.request.node
        shut: set[str] = set()
        for gate, some in by_gate(runs).items():
            known = scan.known[gate]
            if known.holder == node or (len(some) == 1 and known.needs_no_holder(some[0])):
                continue
            took = await self._take_gate(gate, node)
            if took:
                fresh = await self._gate(gate)  # what came before these runs while the gate was not ours
                ids = [run.id for run in some]
                took = not any(_is_blocked(fresh, run, node, ids[: ids.index(run.id)]) for run in some)
                if not took:
                    await self._free_gate(gate, node)
            if not took:
                shut |= {run.id for run in some}
        return shut

    async def _free_unused(self, scan: Scan, claimed: Sequence[Run]) -> None:
        """Free the gates that were taken, or would be let go, for runs that others claimed or changed first."""
        node, used = scan.request.node, {run.gate for run in claimed}
        for gate in scan.gates.taken:
            ours_before = scan.known[gate].holder == node and gate not in scan.request.free_gates
            if gate not in used and not ours_before and (is_item_gate(gate) or gate in self._held_gates):
                await self._free_gate(gate, node)

    async def _claim_runs(self, node: NodeId, runs: Sequence[Run]) -> list[Run]:
        did = await self._db.attempt([self._claim(run, node) for run in runs])
        claimed = [replace(run, state=State.CLAIMED, node=node, fence=run.fence + 1) for run in runs]
        doubtful = [run for run, done in zip(claimed, did, strict=True) if done is Did.DOUBT]
        found = {run.id: run for run in map(run_of, await self._rows([run.id for run in doubtful]))}
        sure = {run.id for run in doubtful if _is_ours(found.get(run.id), run)}
        return [run for run, done in zip(claimed, did, strict=True) if done is Did.DONE or run.id in sure]

    def _claim(self, run: Run, node: NodeId) -> ConditionalStatement:
        values = {"s": text(State.CLAIMED.value), "nd": text(node), "f": {"N": str(run.fence + 1)}}
        where = {
            "f": {"N": str(run.fence)},
            "s": text(run.state.value),
            "r": {"N": str(run.revision)},
            "w": moment(run.wake_at),
            "pk": None,
            "pz": None,
        }
        if run.gate is not None and run.gate not in self._held_gates:
            where[MARKED] = None
        return change(self._db.names.runs, {"id": text(run.id)}, values, where)

    async def _let_go(self, request: ClaimRequest, scan: Scan) -> None:
        """Free the gates that the node does not need any more, unless it has just taken their next run."""
        idle = [gate for gate in request.free_gates if gate not in scan.gates.taken]
        idle = [gate for gate in idle if is_item_gate(gate) or gate in self._held_gates]  # else it was not needed
        await asyncio.gather(*(self._free_gate(gate, request.node) for gate in idle))

    async def _next_at(self, scan: Scan, lanes: Sequence[Line], until: str) -> datetime | None:
        """When the next run wakes that was not offered."""
        times = await asyncio.gather(*(runs.first_beyond() for runs in scan.lanes.values()))
        later = [line.next_at for line in lanes if line.next > until]
        return min([at for at in (*times, *later) if at is not None], default=None)


def _reach(node: Item) -> datetime:
    """How far ahead a node may have claimed, by its row."""
    beat_at = time_of(node["b"]) + AHEAD
    return max(time_of(node["to"]), beat_at) if "to" in node else beat_at


def _is_blocked(gate: Gate, run: Run, node: NodeId, ours: Sequence[str]) -> bool:
    state = gate.state(run, node, ours)
    return state.holder != node or state.earlier_run or state.dead_letter


def _is_ours(found: Run | None, run: Run) -> bool:
    if found is None or found.state in FINAL:
        return False
    return (found.node, found.fence) == (run.node, run.fence)
