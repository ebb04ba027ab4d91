"""Gates in SQLite: what a claim reads of them, and the wake-up of parked runs."""

import sqlite3
from datetime import datetime
from typing import Any

from horae.core.decisions.gates import GateState
from horae.core.decisions.release import Rival
from horae.core.model import JobId, NodeId, RunId
from horae.stores.sqlite import lanes
from horae.stores.sqlite.batches import WaitingRow
from horae.stores.sqlite.codecs import FIRST, maybe_time, to_blob, to_hex, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction

LOOK_AT_GATES = 1000  # in one `tidy`, for parked runs that nothing blocks

MAX_RIVALS = 50  # the first of a long line are enough to decide by


def state_of_gate(db: sqlite3.Connection, row: WaitingRow, node: NodeId, last: WaitingRow | None) -> GateState:
    """The gate of a waiting run, for a node whose claim has taken runs of it up to `last`: no other is before that."""
    after = (FIRST, b"") if last is None else (last.due_at, to_blob(last.id))
    which = {**_place(row, node), "after_due_at": after[0], "after_id": after[1]}
    holder, earlier_run, dead_letter = db.execute(STATEMENTS["gate_state"], which).fetchone()
    return GateState(
        holder=None if holder is None else NodeId(to_hex(holder)),
        earlier_run=bool(earlier_run),
        dead_letter=bool(dead_letter),
    )


def rivals(db: sqlite3.Connection, row: WaitingRow, node: NodeId) -> list[Rival]:
    """The runs ahead of a waiting run in its gate, dead letters first."""
    which = {**_place(row, node), "job_id": to_blob(row.job_id or row.id), "limit": MAX_RIVALS}
    return [
        Rival(
            id=RunId(to_hex(ident)),
            job_id=JobId(to_hex(job_id)),
            started_at=maybe_time(started_at),
            failed=bool(failed),
        )
        for ident, job_id, started_at, failed in db.execute(STATEMENTS["rivals"], which)
    ]


def _place(row: WaitingRow, node: NodeId) -> dict[str, Any]:
    return {"gate": row.gate, "due_at": row.due_at, "id": to_blob(row.id), "node": to_blob(node)}


def wake_next(transaction: Transaction, gate: str, now: datetime) -> bool:
    """Let the first parked run of a gate be claimed again; False when none is parked."""
    woken = transaction.db.execute(STATEMENTS["wake_parked"], {"gate": gate, "now": to_micros(now)}).fetchall()
    lanes.wake(transaction.db, woken)
    for *_, wake_at in woken:
        transaction.due(to_time(wake_at))
    return bool(woken)


def tidy(transaction: Transaction, now: datetime, after: str) -> tuple[int, str]:
    """Free gates of nodes that are gone, and wake parked runs that nothing blocks, in some gates after `after`.

    Returns how many were found, and the gate after which to go on.
    """
    freed = transaction.db.execute(STATEMENTS["free_gates_of_the_gone"]).rowcount
    if freed:
        transaction.due(now)  # runs that wait behind them can be claimed
    which = {"after": after, "limit": LOOK_AT_GATES}
    found = transaction.db.execute(STATEMENTS["unblocked_gates"], which).fetchall()
    last = next((gate for gate, is_last in found if is_last and gate is not None), "")
    return freed + sum(wake_next(transaction, gate, now) for gate, is_last in found if not is_last), last
