"""Gates in SQLite: which runs of a claim may pass theirs, and who goes on when one is left."""

import sqlite3
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from horae.core.decisions.release import Rival
from horae.core.model import JobId, RunId
from horae.ports.store import ClaimRequest, Contested
from horae.stores.sqlite.batches import Waiting, waiting
from horae.stores.sqlite.codecs import maybe_time, to_blob, to_hex, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction

MAX_RIVALS = 50  # of a long line the first are enough to decide by


@dataclass(slots=True)
class ClaimGates:
    """The gates that one claim meets: which it may pass, and which due runs are blocked."""

    db: sqlite3.Connection
    request: ClaimRequest
    full: frozenset[str]
    taken: dict[str, str] = field(default_factory=dict)  # the id of the run that this claim takes, by gate
    contested: list[Contested] = field(default_factory=list)
    lined_up_at: int | None = None  # when the first wakes that comes next in a gate of which one was taken
    letters: bool | None = None  # whether a dead letter blocks any gate; None: not looked up yet

    def admit(self, row: Waiting) -> bool:
        """Whether a run may pass its gate; one that is due and may not is noted as contested."""
        assert row.gate is not None
        if row.gate not in self.full and not self._is_blocked(row):
            if self.taken.setdefault(row.gate, row.id) == row.id:
                return True
            self.lined_up_at = row.wake_at if self.lined_up_at is None else min(self.lined_up_at, row.wake_at)
            return False  # one for each gate; its next comes another time
        if self._is_due(row) and row.gate not in self.request.undecided_gates:
            self.contested.append(Contested(run=waiting(row), rivals=self._rivals(row)))
        return False

    def contest(self, row: Waiting) -> None:
        """Note a run that is due and has no room in its queue, if others are ahead of it: it may overlap them."""
        if row.gate is not None and self._is_due(row) and (rivals := self._rivals(row)):
            self.contested.append(Contested(run=waiting(row), rivals=rivals))

    def _is_due(self, row: Waiting) -> bool:
        return max(row.due_at, row.wake_at) <= to_micros(self.request.now)

    def _is_blocked(self, row: Waiting) -> bool:
        holder = self.db.execute(STATEMENTS["gate_holder"], (row.gate,)).fetchone()
        if holder is not None and to_hex(holder[0]) != self.request.node:
            return True
        taken = self.taken.get(row.gate) if row.gate is not None else None
        place = {**self._place(row), "taken": None if taken is None else to_blob(taken)}
        if self.db.execute(STATEMENTS["blocked_by_earlier"], place).fetchone() is not None:
            return True
        return self._letters_block() and self.db.execute(STATEMENTS["blocked_by_letter"], place).fetchone() is not None

    def _letters_block(self) -> bool:
        """Whether any dead letter blocks a gate: looked up once, because the answer is nearly always no."""
        if self.letters is None:
            self.letters = self.db.execute(STATEMENTS["some_letter_blocks"]).fetchone() is not None
        return self.letters

    def _rivals(self, row: Waiting) -> list[Rival]:
        which = {**self._place(row), "job_id": to_blob(row.job_id or row.id), "limit": MAX_RIVALS}
        unfinished = self.db.execute(STATEMENTS["rivals"], which).fetchall()
        letters = self.db.execute(STATEMENTS["blocking_letters"], which).fetchall() if self._letters_block() else []
        return [
            *(_rival(ident, job_id, None, failed=True) for ident, job_id in letters),
            *(_rival(*found, failed=False) for found in unfinished),
        ]

    def _place(self, row: Waiting) -> dict[str, Any]:
        node = to_blob(self.request.node)
        return {"gate": row.gate, "due_at": row.due_at, "id": to_blob(row.id), "node": node}


def _rival(ident: bytes, job_id: bytes, started_at: int | None, *, failed: bool) -> Rival:
    return Rival(
        id=RunId(to_hex(ident)), job_id=JobId(to_hex(job_id)), started_at=maybe_time(started_at), failed=failed
    )


def wake_next(transaction: Transaction, gate: str, now: datetime) -> bool:
    """Let the first parked run of a gate be claimed again; False when none is parked."""
    woken = transaction.db.execute(STATEMENTS["unpark_next"], {"gate": gate, "now": to_micros(now)}).fetchall()
    for (wake_at,) in woken:
        transaction.due(to_time(wake_at))
    return bool(woken)


def tidy(transaction: Transaction, now: datetime) -> int:
    """Free gates of nodes that are gone, and wake parked runs that nothing blocks; how many were found."""
    db = transaction.db
    freed = [gate for (gate,) in db.execute(STATEMENTS["free_gates_of_gone_nodes"]).fetchall()]
    if freed:
        transaction.due(now)  # what waits behind them can be claimed now
    parked = [gate for (gate,) in db.execute(STATEMENTS["parked_gates"]).fetchall()]
    idle = [gate for gate in parked if db.execute(STATEMENTS["gate_is_blocked"], {"gate": gate}).fetchone() is None]
    return len(freed) + sum(wake_next(transaction, gate, now) for gate in idle)
