"""The life of a run in DynamoDB: started, settled, stopped, and who holds it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core.changes import NewEvent
from horae.core.decisions.results import Settled
from horae.core.effects import effects_of_end
from horae.core.events import end_of_run
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import NodeId, Reason, Run, RunId, State
from horae.core.signals import Kind, Signal
from horae.stores.common.records import key_row
from horae.stores.dynamodb import times
from horae.stores.dynamodb.claims.rooms import DynamoRooms
from horae.stores.dynamodb.database import ConditionalStatement, DeleteItem, Did, PutItem, Range, change, counted
from horae.stores.dynamodb.gates import DynamoGates
from horae.stores.dynamodb.items import Item, attempt_item, due_key, expiry, living, run_of, text
from horae.stores.dynamodb.journals import ended_items
from horae.stores.dynamodb.small_items import record_key

_HELD = [text(state.value) for state in sorted(HELD)]
_WAITING = [text(state.value) for state in sorted(WAITING)]
_STARTED = ("s", "ss", "fs", "a", "pg")


class DynamoRuns(DynamoGates, DynamoRooms):
    """The verbs of the store on runs that nodes hold."""

    @counted
    async def start(self, runs: Sequence[Run]) -> list[bool]:
        first = {run.id: place for place, run in reversed(list(enumerate(runs)))}
        places = sorted(first.values())
        did = await self._db.attempt([self._start(runs[place]) for place in places])
        done = dict(zip(places, did, strict=True))
        doubtful = [runs[place] for place in places if done[place] is Did.DOUBT]
        held = dict(zip(map(id, doubtful), await self._still_held(doubtful), strict=True))
        begun = {runs[place].id: did is Did.DONE or held.get(id(runs[place]), False) for place, did in done.items()}
        return [begun[run.id] for run in runs]

    def _start(self, run: Run) -> ConditionalStatement:
        values = living(run)
        return change(
            self._db.names.runs,
            {"id": text(run.id)},
            {name: values[name] for name in _STARTED},
            {"f": values["f"], "s": _HELD},
        )

    # --- results

    @counted
    async def settle(self, results: Sequence[Settled]) -> list[bool]:
        first: dict[str, Settled] = {}
        for settled in results:
            first.setdefault(settled.run.id, settled)
        written, known = await self._write_results(list(first.values()))
        done = [settled for settled in first.values() if settled.run.id in written]
        await self._after(done)
        answers = []
        for settled in results:
            ours = settled is first[settled.run.id] and settled.run.id in written
            answers.append(ours or _was_settled(settled.run, known.get(settled.run.id)))
        return answers

    async def _write_results(self, results: Sequence[Settled]) -> tuple[set[RunId], dict[RunId, Run]]:
        """Write results whose fences hold; returns which these are, and the rows of the others as they stand."""
        ended = [settled.run for settled in results if settled.run.state in FINAL]
        back = [settled.run for settled in results if settled.run.state not in FINAL]
        journal = [PutItem(self._db.names.meta, item) for item in ended_items(ended)]
        await self._db.write([*journal, *await self._lines.hints(back)])
        did = await self._db.attempt([self._settle(settled) for settled in results])
        written = {settled.run.id for settled, done in zip(results, did, strict=True) if done is Did.DONE}
        rest = {settled.run.id: done for settled, done in zip(results, did, strict=True) if done is not Did.DONE}
        known = {run.id: run for run in map(run_of, await self._rows(list(rest)))}
        by_id = {settled.run.id: settled for settled in results}
        for ident, done in rest.items():
            if done is Did.DOUBT and _was_settled(by_id[ident].run, known.get(ident)):
                written.add(ident)  # by an earlier send of the same request
        return written, known

    def _settle(self, settled: Settled) -> ConditionalStatement:
        run = settled.run
        values = living(run)
        del values["f"], values["st"]  # a stop request stays, for the node that claims the run next
        if run.state in FINAL:
            del values["w"], values["nd"]
            values |= self._end(run)
        where = {"f": {"N": str(run.fence)}, "s": _HELD if settled.was_held else _WAITING}
        return change(self._db.names.runs, {"id": text(run.id)}, values, where)

    def _end(self, run: Run) -> Item:
        """What the end of a run sets beside its state."""
        values: Item = {}
        if self._options.keep is not None and run.finished_at is not None:
            values["ttl"] = expiry(max(run.finished_at, times.wall()) + self._options.keep)
        if run.state is State.FAILED:
            values["dead"] = text(due_key(run))
            if (effects := effects_of_end(run)) is not None and effects.blocks_gate:
                values.pop("ttl", None)
        if run.spec.secrets is not None and run.state is State.SUCCEEDED:
            values["sec"] = {"NULL": True}
        return values

    async def _after(self, done: Sequence[Settled]) -> None:
        """What results bring with them: attempts, events, signals, and the effects of ends."""
        await asyncio.gather(
            self._db.write([PutItem(self._db.names.meta, attempt_item(each.attempt)) for each in done if each.attempt]),
            self._log.append([_end_event(settled.run) for settled in done if settled.run.state in FINAL]),
            self._leave_rooms([settled.run for settled in done]),
        )
        signals = [Signal(kind=Kind.DUE, at=each.run.wake_at) for each in done if each.run.state not in FINAL]
        limited = self._limited
        signals += [Signal(kind=Kind.DUE, at=each.left_at) for each in done if each.run.spec.queue in limited]
        left: dict[str, datetime] = {}
        for settled in done:
            run = settled.run
            effects = effects_of_end(run) if run.state in FINAL else None
            if effects is None:
                continue
            if effects.frees_key:
                await self._free_key(run)
            if effects.leaves_gate and run.gate is not None and run.finished_at is not None:
                if not effects.blocks_gate:
                    await self._leave_gate(run)
                left[run.gate] = run.finished_at
        for gate, at in left.items():  # once for each: what is woken wakes the next when it ends
            if (wakes := await self._wake_next(gate, at)) is not None:
                signals.append(Signal(kind=Kind.DUE, at=wakes))
        self._tell(signals)

    async def _free_key(self, run: Run) -> None:
        row = key_row(run)
        where = {"v": text(row.value)}
        statement = ConditionalStatement(
            f'DELETE FROM "{self._db.names.meta}" WHERE "pk"=? AND "sk"=? AND "v"=?',
            [*record_key(row.kind, row.owner, row.key).values(), *where.values()],
        )
        await self._db.statements([statement])

    # --- who holds what

    @counted
    async def stops(self, node: NodeId) -> Mapping[RunId, Reason]:
        pk = f"stop#{node}"
        asked = [item["sk"]["S"] for item in await self._db.items(Range(table=self._db.names.meta, pk=("pk", pk)))]
        found = {run.id: run for run in map(run_of, await self._rows(asked))}
        open_ones = {
            ident: run.stop
            for ident, run in found.items()
            if run.node == node and run.state in HELD and run.stop is not None
        }
        over = [ident for ident in asked if ident not in open_ones]
        await self._db.write([DeleteItem(self._db.names.meta, {"pk": text(pk), "sk": text(ident)}) for ident in over])
        return open_ones

    @counted
    async def still_held(self, runs: Sequence[Run]) -> list[bool]:
        return await self._still_held(runs)

    async def _still_held(self, runs: Sequence[Run]) -> list[bool]:
        ids = list(dict.fromkeys(run.id for run in runs))
        fences = {run.id: run.fence for run in map(run_of, await self._rows(ids)) if run.state in HELD}
        return [fences.get(run.id) == run.fence for run in runs]


def _end_event(run: Run) -> NewEvent:
    return NewEvent(end_of_run(run.state), run.owner, run.id)


def _was_settled(run: Run, found: Run | None) -> bool:
    """Whether a result whose fence is not held was written before, and is sent again."""
    if found is None or (found.fence, found.state) != (run.fence, run.state):
        return False
    if found.finished_at is None:
        return found.wake_at == run.wake_at
    return found.finished_at == run.finished_at
