"""Applies changes in SQLite: the write lock keeps guarded rows unchanged between check and write."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horae.core.changes import (
    Change,
    Found,
    GatesOf,
    JobMoved,
    JobUnchanged,
    LetterResolved,
    OneShotRevised,
    Parked,
    Refusal,
    RunRestored,
    RunUnchanged,
    StopRequested,
)
from horae.core.model import Backfill, Job, JobId, JobStatus, Node, NodeId, Reason, Run, RunId, Skip, State
from horae.core.records import IdempotencyRecord, KeyHolder, QueueSettings
from horae.stores.common.apply import Named, Writes
from horae.stores.common.records import RecordRow
from horae.stores.sqlite import batches, lanes
from horae.stores.sqlite.codecs import (
    Values,
    backfill_values,
    job_values,
    maybe_micros,
    maybe_time,
    moved_values,
    node_values,
    one_shot_values,
    skip_values,
    to_blob,
    to_hex,
    to_micros,
    to_time,
)
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.gates import wake_next
from horae.stores.sqlite.queues import settings
from horae.stores.sqlite.reads import records
from horae.stores.sqlite.upkeep import restore


def apply(transaction: Transaction, changes: Sequence[Change]) -> list[Refusal | None]:
    """Write each change whose guards hold; what those before it in the batch wrote counts."""
    found = _find(transaction.db, Named.by(changes))
    refusals = [found.admit(change) for change in changes]
    _write(transaction, Writes.of(changes, refusals))
    return refusals


def _find(db: sqlite3.Connection, named: Named) -> Found:
    return Found(
        jobs={
            JobId(to_hex(ident)): JobUnchanged(
                JobId(to_hex(ident)), revision, maybe_time(next_fire_at), JobStatus(status)
            )
            for ident, revision, next_fire_at, status in _rows(db, "guarded_jobs", named.jobs)
        },
        cancelled={JobId(to_hex(ident)) for (ident,) in _rows(db, "cancelled_jobs", named.open_jobs)},
        runs={
            RunId(to_hex(ident)): RunUnchanged(
                RunId(to_hex(ident)), State(state), fence, revision, None if stop is None else Reason(stop)
            )
            for ident, state, fence, revision, stop in _rows(db, "guarded_runs", named.runs)
        },
        letters={RunId(to_hex(ident)) for (ident,) in _rows(db, "guarded_letters", named.letters)},
        backfills={to_hex(ident): to_time(start) for ident, start in _rows(db, "guarded_backfills", named.backfills)},
        records={place: found for place, new in named.records.items() if (found := _record(db, new)) is not None},
        queues=dict(settings(db)) if named.queues else {},
        nodes={NodeId(to_hex(ident)): to_time(at) for ident, at in _rows(db, "guarded_nodes", named.nodes)},
    )


def _record(db: sqlite3.Connection, new: KeyHolder | IdempotencyRecord) -> KeyHolder | IdempotencyRecord | None:
    """What is there in the place of a new record; an answer that is no longer valid gives way."""
    found: KeyHolder | IdempotencyRecord
    for found in records(db, type(new), new.owner, new.key):
        if isinstance(new, KeyHolder) or (isinstance(found, IdempotencyRecord) and found.is_valid(new.created_at)):
            return found
    return None


def _rows(db: sqlite3.Connection, statement: str, ids: Iterable[str]) -> list[Any]:
    return [row for ident in ids for row in db.execute(STATEMENTS[statement], {"id": to_blob(ident)})]


Write = tuple[type, str, Callable[[Any], Values]]  # a kind of item, the statement for it, and its values

_DELETES: Sequence[Write] = (
    (Run, "delete_runs", lambda run: (to_blob(run.id),)),
    (Skip, "delete_skips", lambda skip: (to_blob(skip.job_id), to_micros(skip.start))),
    (Backfill, "delete_backfills", lambda backfill: (to_blob(backfill.id),)),
    (RecordRow, "delete_records", lambda row: row[:4]),
    (GatesOf, "delete_gates_of_nodes", lambda gates: (to_blob(gates.node),)),
    (Node, "delete_nodes", lambda node: (to_blob(node.id),)),
)
_PUTS: Sequence[Write] = (
    (Job, "put_jobs", job_values),
    (JobMoved, "move_jobs", moved_values),
    (OneShotRevised, "revise_one_shot", lambda revised: one_shot_values(revised.run)),
    (StopRequested, "set_stops", lambda stop: (stop.reason.value, to_blob(stop.run_id))),
    (Parked, "park_runs", lambda parked: (to_blob(parked.run_id),)),
    (LetterResolved, "resolve_run", lambda resolved: (resolved.resolution, to_blob(resolved.letter.id))),
    (LetterResolved, "delete_letter", lambda resolved: (to_blob(resolved.letter.id),)),
    (Skip, "insert_skips", skip_values),
    (Backfill, "put_backfills", backfill_values),
    (RecordRow, "put_records", lambda row: (*row[:4], maybe_micros(row.at))),
    (QueueSettings, "put_queue", lambda queue: (queue.queue, queue.paused, queue.concurrency)),
    (Node, "put_node", node_values),
)


def _write(transaction: Transaction, writes: Writes) -> None:
    db = transaction.db
    for table, items in ((_DELETES, writes.deletes), (_PUTS, writes.puts)):
        for kind, statement, encode in table:
            if kind in items:
                db.executemany(STATEMENTS[statement], map(encode, items[kind]))
    new = batches.encode(writes.puts[Run])
    batches.insert(db, new)
    lanes.wake(db, [*new.wakes, *lanes.wakes(revised.run for revised in writes.puts[OneShotRevised])])
    for restored in writes.puts[RunRestored]:
        restore(db, restored)
    for left in writes.gates_left:
        wake_next(transaction, left.gate, left.at)
    for event in writes.events:
        transaction.emit(event.kind, event.owner, event.subject)
    transaction.signals += writes.signals
