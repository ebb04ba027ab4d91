"""Heartbeats in SQLite, and what becomes of old rows: read for the archive, deleted, restored."""

import sqlite3
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any

from horae.core.changes import RunRestored
from horae.core.model import NodeId, Run, State
from horae.core.records import IDEMPOTENCY_LIFE
from horae.ports.events import EVENT_LIFE
from horae.ports.store import Beat, EndedRuns
from horae.stores.common.codecs import run_row
from horae.stores.sqlite.codecs import MICROSECOND, ROWS, attempt_values, to_blob, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction

_IDS = {"id", "job_id", "node", "requeue_of"}


def beat(
    transaction: Transaction, node: NodeId, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta
) -> Beat | None:
    """Renew a node's lease and return the live nodes; None when the node was removed."""
    values = (to_micros(now), running, wall_ahead // MICROSECOND, to_blob(node))
    renewed = transaction.db.execute(STATEMENTS["beat"], values)
    if renewed.rowcount == 0:
        return None
    alive = transaction.db.execute(STATEMENTS["nodes_since"], (to_micros(now - dead_after),))
    return Beat(nodes=[ROWS.node(row) for row in alive])


def ended(db: sqlite3.Connection, before: date, after: Run | None, limit: int) -> EndedRuns | None:
    """A page of the runs that ended on a day, by the time of their end."""
    if after is None or after.finished_at is None:
        first = db.execute(STATEMENTS["first_old_run"], {"before": _midnight(before), "limit": 1}).fetchone()
        if first is None:
            return None
        day, ident = to_time(first[0]).date(), b""
        start = _midnight(day)
    else:
        day, ident = after.finished_at.astimezone(UTC).date(), to_blob(after.id)
        start = to_micros(after.finished_at)
    which = {"from": start, "to": _midnight(day + timedelta(days=1)), "id": ident, "limit": limit}
    return EndedRuns(day=day, runs=[ROWS.run(row) for row in db.execute(STATEMENTS["ended_page"], which)])


def expire(transaction: Transaction, now: datetime, limit: int) -> int:
    """Delete old idempotency records and events, at most `limit` rows of each."""
    lives = (("expire_idempotency", IDEMPOTENCY_LIFE), ("expire_events", EVENT_LIFE))
    return sum(
        transaction.db.execute(STATEMENTS[name], {"before": to_micros(now - life), "limit": limit}).rowcount
        for name, life in lives
    )


def prune(transaction: Transaction, before: date, limit: int, runs: int | None) -> int:
    """Delete runs, skips, cancelled jobs and blobs of days before one, at most `limit` rows of each."""
    db = transaction.db
    which = {"before": _midnight(before), "limit": limit}
    deleted = 0
    if runs is None or db.execute(STATEMENTS["count_old_runs"], {**which, "limit": runs + 1}).fetchone()[0] <= runs:
        db.execute(STATEMENTS["prune_attempts"], which)  # before their runs, by which they are found
        db.execute(STATEMENTS["prune_letters"], which)
        deleted += db.execute(STATEMENTS["prune_runs"], which).rowcount
    for name in ("prune_restored_attempts", "prune_restored_letters", "prune_restored_runs"):
        db.execute(STATEMENTS[name], which)
    db.execute(STATEMENTS["prune_trails"], which)  # before their jobs
    statements = ("prune_restored", "prune_skips", "prune_jobs", "prune_blobs")
    return deleted + sum(db.execute(STATEMENTS[name], which).rowcount for name in statements)


def restore(db: sqlite3.Connection, restored: RunRestored) -> None:
    """Write a run that ended long ago, unless it is there."""
    run = restored.run
    if db.execute(STATEMENTS["restore_run"], _restored_values(run)).rowcount:
        db.executemany(STATEMENTS["add_attempts"], map(attempt_values, restored.attempts))
        db.execute(STATEMENTS["mark_restored"], (to_blob(run.id), to_micros(restored.at)))
        if run.state is State.FAILED and run.resolution is None:
            db.execute(STATEMENTS["insert_letter"], {"id": to_blob(run.id), "blocks": False})


def _restored_values(run: Run) -> dict[str, Any]:
    return {name: _stored(name, value) for name, value in run_row(run).items()}


def _stored(name: str, value: Any) -> Any:
    """A value of `run_row` as SQLite keeps it."""
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, Enum | bool):  # the driver searches an adapter for every other type
        return value.value if isinstance(value, Enum) else int(value)
    return to_blob(value) if name in _IDS and value is not None else value


def _midnight(day: date) -> int:
    return to_micros(datetime.combine(day, time(), UTC))
