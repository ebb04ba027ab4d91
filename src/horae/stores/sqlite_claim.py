"""Claiming in SQLite: lane by lane in order of priority, and through the gates."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import Any

from horae.core.model import JobId, Run, State
from horae.core.plan import Rival
from horae.store import ClaimRequest, Claims, Contested
from horae.stores.rows import RUN_COLUMNS
from horae.stores.sqlite_database import STATEMENTS
from horae.stores.sqlite_executor import Transaction
from horae.stores.sqlite_rows import FIRST, ROWS, maybe_time, to_blob, to_hex, to_json, to_micros, to_time

MAX_CONTESTED = 1000  # blocked runs that one claim brings up
MAX_RIVALS = 50  # of a long line the first are enough to decide by

_ID, _JOB_ID, _DUE_AT, _WAKE_AT = (RUN_COLUMNS.index(name) for name in ("id", "job_id", "due_at", "wake_at"))
_GATE, _STATE, _NODE, _FENCE = (RUN_COLUMNS.index(name) for name in ("gate", "state", "node", "fence"))
_SEQ = len(RUN_COLUMNS) + 1  # after `parked`

Row = Sequence[Any]
Lane = tuple[str, int]


def claim(transaction: Transaction, request: ClaimRequest) -> Claims:
    """Take runs for a node."""
    db, node = transaction.db, to_blob(request.node)
    if db.execute(STATEMENTS["node_is_registered"], (node,)).fetchone() is None:
        return Claims(alive=False)
    db.executemany(STATEMENTS["free_gate"], [(gate, node) for gate in request.free_gates])
    lanes = _lanes(db, request.queues)
    taken, gates, more = _choose(db, request, lanes)
    db.executemany(STATEMENTS["claim_run"], [(node, row[_SEQ]) for row in taken])
    db.executemany(STATEMENTS["take_gate"], [(gate, node) for gate in gates.taken])
    return Claims(
        runs=[_claimed(row, node) for row in taken],
        contested=gates.contested,
        more=more,
        next_at=_next_at(db, lanes, request.until),
    )


def _claimed(row: Row, node: bytes) -> Run:
    """The run as the statement claim_run has left it."""
    columns = list(row)
    columns[_STATE], columns[_NODE] = State.CLAIMED.value, node
    columns[_FENCE] += 1
    return ROWS.run(columns)


def _lanes(db: sqlite3.Connection, queues: Sequence[str]) -> list[Lane]:
    """The lanes that have something to claim, the highest priority first."""
    if queues:
        return db.execute(STATEMENTS["lanes_of_queues"], {"queues": to_json(queues)}).fetchall()
    return db.execute(STATEMENTS["lanes_of_every_queue"]).fetchall()


def _choose(db: sqlite3.Connection, request: ClaimRequest, lanes: Sequence[Lane]) -> tuple[list[Row], "_Gates", bool]:
    """The rows to take, those with a gate only if they may pass it, and whether there may be more."""
    gates = _Gates(db, request, frozenset(request.full_gates))
    taken: list[Row] = []
    if request.limit <= 0:
        return taken, gates, False
    for row in _candidates(db, request, lanes):
        if row[_GATE] is None or gates.admit(row):
            taken.append(row)
        if len(taken) >= request.limit or len(gates.contested) >= MAX_CONTESTED:
            return taken, gates, True
    return taken, gates, False


def _candidates(db: sqlite3.Connection, request: ClaimRequest, lanes: Sequence[Lane]) -> Iterator[Row]:
    """What wakes by `until`, by priority, then wake-up time; read no further than it is asked for."""
    bounds = {
        "floor": FIRST if request.floor is None else to_micros(request.floor),
        "until": to_micros(request.until),
        "tasks": to_json(request.tasks),
    }
    for _, peers in groupby(lanes, key=lambda lane: lane[1]):
        cursors = [
            db.execute(STATEMENTS["lane"], {"queue": queue, "priority": priority, **bounds})
            for queue, priority in peers
        ]
        try:
            yield from merge(*cursors, key=lambda row: row[_WAKE_AT])
        finally:
            for cursor in cursors:
                cursor.close()  # an open one would go on reading while rows are changed


def _next_at(db: sqlite3.Connection, lanes: Sequence[Lane], until: datetime) -> datetime | None:
    found = [
        db.execute(
            STATEMENTS["next_in_lane"], {"queue": queue, "priority": priority, "until": to_micros(until)}
        ).fetchone()[0]
        for queue, priority in lanes
    ]
    return maybe_time(min((wake_at for wake_at in found if wake_at is not None), default=None))


@dataclass(slots=True)
class _Gates:
    """The gates that a claim meets: which it may pass, and what is due but blocked."""

    db: sqlite3.Connection
    request: ClaimRequest
    full: frozenset[str]
    taken: dict[str, bytes] = field(default_factory=dict)  # the run that this claim takes, by gate
    contested: list[Contested] = field(default_factory=list)

    def admit(self, row: Row) -> bool:
        """Whether a run may pass its gate; one that is due and may not is noted as contested."""
        gate = row[_GATE]
        if gate not in self.full and not self._is_blocked(row):
            taken: bytes = self.taken.setdefault(gate, row[_ID])
            return bool(taken == row[_ID])  # one for each gate; its next comes another time
        if max(row[_DUE_AT], row[_WAKE_AT]) <= to_micros(self.request.now):
            self.contested.append(Contested(run=ROWS.run(row), rivals=self._rivals(row)))
        return False

    def _is_blocked(self, row: Row) -> bool:
        holder = self.db.execute(STATEMENTS["gate_holder"], (row[_GATE],)).fetchone()
        if holder is not None and to_hex(holder[0]) != self.request.node:
            return True
        place = {**self._place(row), "taken": self.taken.get(row[_GATE])}
        return self.db.execute(STATEMENTS["blocked_by_earlier"], place).fetchone() is not None

    def _rivals(self, row: Row) -> list[Rival]:
        which = {**self._place(row), "job_id": row[_JOB_ID], "limit": MAX_RIVALS}
        found = self.db.execute(STATEMENTS["rivals"], which)
        return [Rival(job_id=JobId(to_hex(job_id)), started_at=maybe_time(started)) for job_id, started in found]

    def _place(self, row: Row) -> dict[str, Any]:
        node = to_blob(self.request.node)
        return {"gate": row[_GATE], "due_at": row[_DUE_AT], "id": row[_ID], "node": node}


def park(transaction: Transaction, runs: Sequence[Run]) -> None:
    """Keep blocked runs away from claims, if something is still ahead of them."""
    transaction.db.executemany(
        STATEMENTS["park_run"], [{"id": to_blob(run.id), "fence": run.fence} for run in runs if run.gate is not None]
    )


def wake_next(transaction: Transaction, gate: str, now: datetime) -> bool:
    """Let the first parked run of a gate be claimed again; False when none is parked."""
    woken = transaction.db.execute(STATEMENTS["unpark_next"], {"gate": gate, "now": to_micros(now)}).fetchall()
    for (wake_at,) in woken:
        transaction.due(to_time(wake_at))
    return bool(woken)


def tidy(transaction: Transaction, now: datetime) -> int:
    """Free gates of nodes that are gone, and wake parked runs that nothing blocks."""
    db = transaction.db
    freed = [gate for (gate,) in db.execute(STATEMENTS["free_gates_of_gone_nodes"]).fetchall()]
    if freed:
        transaction.due(now)  # what waits behind them may be claimed at last
    waiting = [gate for (gate,) in db.execute(STATEMENTS["parked_gates"]).fetchall()]
    idle = [gate for gate in waiting if db.execute(STATEMENTS["gate_is_blocked"], {"gate": gate}).fetchone() is None]
    return len(freed) + sum(wake_next(transaction, gate, now) for gate in idle)
