"""Applies changes in DynamoDB: each is one conditional transaction, written again after a look when it lost a race."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from uuid import uuid4

from horae.aws_api.errors import ConditionFailed, TransactionCancelled, is_throttle
from horae.core.changes import Absent, Change, GatesOf, Refusal, RunRestored
from horae.core.errors import Unavailable
from horae.core.lifecycle import WAITING
from horae.core.model import Node, Run
from horae.core.records import QueueSettings, TaskSchema
from horae.core.signals import Kind, Signal
from horae.stores.dynamodb.changes.actions import MOST_ACTIONS, Actions
from horae.stores.dynamodb.changes.fire import DynamoFire
from horae.stores.dynamodb.changes.guards import NamedRows, Wanted, found_of, read_rows, require, run_key
from horae.stores.dynamodb.changes.writes import Writing
from horae.stores.dynamodb.database import AT_ONCE, PutItem, counted
from horae.stores.dynamodb.gates import MARKED, Place, is_item_gate, place_of
from horae.stores.dynamodb.items import live_of, run_of
from horae.stores.dynamodb.life.create import DynamoCreate
from horae.stores.dynamodb.life.upkeep import DynamoUpkeep
from horae.stores.dynamodb.small_items import record_item

TRIES = 8  # of a change that loses races
FIRST_WAIT = 0.01  # seconds at most before the second try; doubled for each further one


class Lost(Exception):
    """A transaction whose conditions did not hold: something was changed since it was read."""


class DynamoApply(DynamoCreate, DynamoFire, DynamoUpkeep):
    """The verb of the store that applies changes."""

    @counted
    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        refusals: list[Refusal | None] = [None] * len(changes)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(place: int, rows: NamedRows) -> None:
            async with gate:
                refusals[place] = await self._apply(changes[place], rows)

        for wave in _waves(changes):
            rows = await read_rows(self._db, [Wanted.by(changes[place], whole=False) for place in wave])
            await self._complete(list(rows.jobs.values()))
            fired = await self._fire([(place, changes[place]) for place in wave], rows)
            rest = [place for place in wave if place not in fired]
            done = await asyncio.gather(*(one(place, rows) for place in rest), return_exceptions=True)
            if errors := [error for error in done if isinstance(error, BaseException)]:
                raise errors[0]
        written = [change for change, refusal in zip(changes, refusals, strict=True) if refusal is None]
        await self._log.append([event for change in written for event in change.events])
        self._tell(signal for change in written for signal in change.signals)
        return refusals

    async def _apply(self, change: Change, rows: NamedRows) -> Refusal | None:
        """Write a change whose guards hold, by what was read of them; reads again when that is old."""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(random.random() * FIRST_WAIT * 2**attempt)
                rows = await read_rows(self._db, [Wanted.by(change, whole=True)])
            if (refusal := found_of(change, rows).admit(change)) is not None:
                return refusal
            try:
                await self._write(change, rows)
            except Lost:
                continue
            await self._follow(change)
            return None
        raise Unavailable("what is to be changed is being changed too fast by others; try again")

    async def _write(self, change: Change, rows: NamedRows) -> None:
        """Write a change: hints and journals first, which do no harm alone, then all the rest in one transaction."""
        new = [put for put in change.puts if isinstance(put, Run) and put.id not in rows.runs]
        shards = await self._owners.sub_shards(_owners_of(change))
        actions = Actions()
        require(actions, change, rows, self._db)
        writing = Writing(self._db.names, rows, actions, shards)
        for item in change.deletes:
            writing.delete(item)
        for put in change.puts:
            writing.put(put)
        await self._mark_later(change, new, rows, actions)
        writing.finish()
        before = [*self._made(new, shards), *await self._before(new), *writing.before]
        before += [await self._lines.plan_hint(plan_at, ident) for plan_at, ident in writing.plans]
        before += [self._aside(run) for run in writing.parked]
        before += await self._lines.hints(writing.moved)
        before += [PutItem(self._db.names.meta, record_item(put)) for put in change.puts if isinstance(put, TaskSchema)]
        await self._db.write(_each_once(before))
        await self._commit(actions)

    async def _mark_later(self, change: Change, new: Sequence[Run], rows: NamedRows, actions: Actions) -> None:
        """Mark the runs of a job that new ones are put in front of: they were alone, and may be about to be claimed."""
        firsts: dict[str, Place] = {}
        for run in new:
            if run.gate is not None and not is_item_gate(run.gate):
                firsts[run.job_id] = min(firsts.get(run.job_id, place_of(run)), place_of(run))
        ids = [ident for job_id in firsts if job_id in rows.jobs for ident in live_of(rows.jobs[job_id])]
        gone = {item.id for item in change.deletes if isinstance(item, Run)}
        for item in await self._rows([ident for ident in ids if ident not in gone]):
            run = run_of(item)
            if run.state in WAITING and place_of(run) > firsts[run.job_id]:
                action = actions.at(self._db.names.runs, run_key(run.id))
                action.set(MARKED, {"BOOL": True})
                action.require_as(item, ("s", "f"))

    async def _commit(self, actions: Actions) -> None:
        """Do all actions or none; raises Lost when a condition does not hold."""
        todo = actions.all()
        if len(todo) > MOST_ACTIONS:
            raise Unavailable(f"a change of {len(todo)} rows is too large for DynamoDB")
        if not todo:
            return
        alone = todo[0].alone() if len(todo) == 1 else None
        try:
            if alone is not None:
                await self._client.call(*alone)
                return
            body = {"TransactItems": [action.in_transaction() for action in todo], "ClientRequestToken": str(uuid4())}
            await self._client.call("TransactWriteItems", body)
        except ConditionFailed as exc:
            raise Lost from exc
        except TransactionCancelled as exc:
            codes = {reason.code for reason in exc.reasons if reason.code is not None}
            if all(code == "ConditionalCheckFailed" or is_throttle(code) for code in codes):
                raise Lost from exc
            raise

    async def _follow(self, change: Change) -> None:
        """What a change brings with it once it is written."""
        for item in change.deletes:
            if isinstance(item, Run):
                await self._leave_gate(item)
            if isinstance(item, GatesOf):
                await self._free_gates_of(item.node)
        for left in change.gates_left:
            wakes = await self._wake_next(left.gate, left.at)
            if wakes is not None:
                self._tell([Signal(kind=Kind.DUE, at=wakes)])
        for put in change.puts:
            if isinstance(put, QueueSettings) and put.concurrency is not None:
                await self._count_held(put.queue)


def _owners_of(change: Change) -> set[str]:
    """The owners of what a change writes."""
    puts = [put.run if isinstance(put, RunRestored) else put for put in change.puts]
    return {put.owner for put in puts if hasattr(put, "owner")}


def _waves(changes: Sequence[Change]) -> list[list[int]]:
    """Changes that can be written side by side: none names a row that an earlier one of its wave does."""
    waves: list[list[int]] = []
    level: dict[object, int] = {}
    for place, change in enumerate(changes):
        names = _names(change)
        wave = max((level[name] + 1 for name in names if name in level), default=0)
        level |= dict.fromkeys(names, wave)
        if wave == len(waves):
            waves.append([])
        waves[wave].append(place)
    return waves


def _names(change: Change) -> set[object]:
    """What a change reads or writes, in any form that two changes of one thing share."""
    wanted = Wanted.by(change, whole=True)
    names: set[object] = {("job", ident) for ident in wanted.jobs} | {("run", ident) for ident in wanted.runs}
    names |= {("fill", ident) for ident in wanted.fills} | {("meta", *place) for place in wanted.meta}
    names |= {("job", guard.id) for guard in change.guards if isinstance(guard, Absent)}
    return names | {("node", put.id) for put in change.puts if isinstance(put, Node)}


def _each_once(puts: Iterable[PutItem]) -> list[PutItem]:
    return list({(put.table, *_key_of(put)): put for put in puts}.values())


def _key_of(put: PutItem) -> tuple[str, ...]:
    names = ("pk", "sk") if "pk" in put.item else ("line", "at")
    return tuple(put.item[name]["S"] for name in names)
