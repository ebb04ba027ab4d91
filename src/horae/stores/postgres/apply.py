"""Changes in PostgreSQL: lock the rows that guards name, check them, and write what is admitted, table by table."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from horae.core.changes import (
    Change,
    GatesOf,
    JobMoved,
    LetterResolved,
    OneShotRevised,
    Parked,
    Refusal,
    RunRestored,
    StopRequested,
)
from horae.core.model import Backfill, Job, Node, Run, Skip
from horae.core.records import QueueSettings
from horae.stores.common.apply import Named, Writes
from horae.stores.common.records import RecordRow
from horae.stores.postgres import codecs
from horae.stores.postgres.base import PostgresBase, due_from, wake_parked
from horae.stores.postgres.codecs import Places, columns, day_of, first_day
from horae.stores.postgres.connection.database import Collision, Session, retried
from horae.stores.postgres.guards import Place, lock
from horae.stores.postgres.upkeep import count_held, restore

Encode = Callable[[Any], tuple[Any, ...]]

_DELETES: Mapping[type, tuple[str, Encode]] = {
    Run: ("delete_runs", lambda run: (run.id,)),
    Skip: ("delete_skips", lambda skip: (skip.job_id, skip.start)),
    Backfill: ("delete_backfills", lambda backfill: (backfill.id,)),
    RecordRow: ("delete_records", lambda row: row[:4]),
    GatesOf: ("delete_gates_of_nodes", lambda gates: (gates.node,)),
    Node: ("delete_nodes", lambda node: (node.id,)),
}
_PUTS: Mapping[type, tuple[str, Encode]] = {
    Job: ("put_jobs", codecs.job),
    JobMoved: ("move_jobs", lambda job: (job.id, job.next_fire_at, job.plan_at, job.status)),
    StopRequested: ("set_stops", lambda stop: (stop.run_id, stop.reason)),
    Parked: ("park_runs", lambda parked: (parked.run_id,)),
    Skip: ("insert_skips", codecs.skip),
    Backfill: ("put_backfills", codecs.backfill),
    QueueSettings: ("put_queues", lambda queue: (queue.queue, queue.paused, queue.concurrency)),
    RecordRow: ("put_records", tuple),
}


class PostgresApply(PostgresBase):
    """The verb of the store that applies changes."""

    @retried
    async def apply(self, changes: Sequence[Change]) -> list[Refusal | None]:
        if not changes:
            return []
        places = await self._places_of(_runs_of(changes))
        await self._ensure_days(
            {day_of(put.at) for change in changes for put in change.puts if type(put) is RunRestored}
        )
        async with self._db.transaction() as session:
            locked = await lock(session, Named.by(changes))
            limits = {queue.queue: queue.concurrency for queue in locked.found.queues.values()}
            refusals = [locked.found.admit(change) for change in changes]
            writes = Writes.of(changes, refusals)
            _settle_reserved(writes, locked.reserved)
            woken = await _write(session, writes, places)
        self._signals.send([*writes.signals, *due_from([*woken, *locked.passed_over])])
        for queue in writes.puts[QueueSettings]:
            if queue.concurrency is not None and queue.concurrency != limits[queue.queue]:
                self._limited |= {queue.queue}
                await count_held(self._db, queue.queue)
        return refusals


def _runs_of(changes: Sequence[Change]) -> list[Run]:
    puts = [put for change in changes for put in change.puts if isinstance(put, Run | OneShotRevised | RunRestored)]
    return [put if isinstance(put, Run) else put.run for put in puts]


def _settle_reserved(writes: Writes, reserved: Mapping[Place, RecordRow]) -> None:
    """Leave out what was written when it was reserved, and take back what nobody was admitted for."""
    puts: dict[Place, RecordRow] = {row[:3]: row for row in writes.puts[RecordRow]}
    writes.deletes[RecordRow] += [row for place, row in reserved.items() if place not in puts]
    writes.puts[RecordRow] = [row for place, row in puts.items() if reserved.get(place) != row]


async def _write(session: Session, writes: Writes, places: Places) -> list[datetime]:
    """Write changes; returns when runs wake that wait behind others in their gates."""
    for table, kinds in ((_DELETES, writes.deletes), (_PUTS, writes.puts)):
        for kind, (statement, encode) in table.items():
            await session.batch(statement, encode, kinds.get(kind, ()))
    for node in writes.puts[Node]:
        await session.rows("put_node", *codecs.node_columns(node))
    for revised in writes.puts[OneShotRevised]:
        await session.rows("revise_one_shot", *codecs.one_shot(revised.run, places))
    await _resolve(session, writes.puts[LetterResolved])
    await insert_runs(session, writes.puts[Run], places)
    await restore(session, writes.puts[RunRestored], places)
    await session.batch("add_events", lambda event: (event.kind, event.owner, event.subject), writes.events)
    return await wake_parked(session, [(left.gate, left.at) for left in writes.gates_left])


async def _resolve(session: Session, resolved: Sequence[LetterResolved]) -> None:
    if resolved:
        given = columns(lambda each: (each.letter.id, each.resolution), resolved)
        await session.rows("resolve_letters", *given, first_day(given[0]))
        gated = [each.letter for each in resolved if each.letter.gate is not None]
        await session.batch("delete_blocks", lambda run: (run.gate, run.due_at, run.id), gated)


async def insert_runs(session: Session, runs: Sequence[Run], places: Places) -> None:
    """Write new runs; their guards keep them from being written twice."""
    if not runs:
        return
    batches = codecs.new_runs({run.id: run for run in runs}.values(), places)  # a page may come twice
    try:
        await session.rows("insert_runs", batches, *codecs.lane_wakes(batches))
    except asyncpg.UniqueViolationError as exc:
        raise Collision("runs with these ids are being written; try again") from exc
