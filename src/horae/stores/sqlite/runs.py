"""Runs in SQLite: created, started and settled, and which of them nodes hold."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from horae.core.decisions.results import Settled
from horae.core.effects import effects_of_end
from horae.core.events import EventKind, end_of_run
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import NodeId, Reason, Run, RunId
from horae.stores.common.records import key_row
from horae.stores.sqlite import batches, lanes, queues
from horae.stores.sqlite.codecs import ROWS, attempt_values, maybe_micros, to_blob, to_hex, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.gates import wake_next


def creating(runs: Sequence[Run]) -> Callable[[Transaction], None]:
    """Inserts one-shots, encoded before the write lock is taken; those that exist already cause no event."""
    encoded = batches.encode(runs)
    wake_at = min((at for *_, at in encoded.wakes), default=None)

    def create(transaction: Transaction) -> None:
        if wake_at is not None:
            transaction.due(to_time(wake_at))
        lanes.wake(transaction.db, encoded.wakes)
        inserted, fresh = batches.insert(transaction.db, encoded), runs
        if inserted < len(runs):
            last = {to_hex(ident) for (ident,) in transaction.db.execute(STATEMENTS["last_runs_inserted"], (inserted,))}
            fresh = [run for run in runs if run.id in last]
        for owner, created in groupby(fresh, key=attrgetter("owner")):
            transaction.emit(EventKind.JOB_CREATED, owner, *[run.job_id for run in created])

    return create


def start(transaction: Transaction, runs: Sequence[Run]) -> list[bool]:
    """Write the starts of attempts, or their progress, if the fences still hold."""
    found = [each for each in batches.find(transaction.db, runs) if each.state in HELD]
    batches.start(transaction.db, {each.seq: runs[each.place] for each in found})
    places = {each.place for each in found}
    return [place in places for place in range(len(runs))]


def settling(results: Sequence[Settled]) -> Callable[[Transaction], list[bool]]:
    """Writes results whose fences still hold.

    Most results are ends. These are encoded before the write lock is taken, and written without reading the runs first;
    if the count shows that a fence did not hold, they are rolled back and written one by one.
    """
    if not all(settled.run.state in FINAL for settled in results):
        return lambda transaction: _settle(transaction, results)
    ends, side_effects = batches.encode_ends(results), _SideEffects(results)

    def settle(transaction: Transaction) -> list[bool]:
        db = transaction.db
        db.execute("SAVEPOINT ends")
        all_written = batches.end(db, ends) == len(results)
        if not all_written:
            db.execute("ROLLBACK TO ends")
        db.execute("RELEASE ends")
        if not all_written:
            return _settle(transaction, results)
        side_effects.write(transaction)
        return [True] * len(results)

    return settle


def _settle(transaction: Transaction, results: Sequence[Settled]) -> list[bool]:
    """Write results one by one; True also for a result that was written before."""
    db, fresh = transaction.db, dict[int, int]()  # places by seq: of several results of a run the first is written
    for found in batches.find(db, [settled.run for settled in results]):
        if found.state in (HELD if results[found.place].was_held else WAITING):
            fresh.setdefault(found.seq, found.place)
    returned = {seq: run for seq, place in fresh.items() if (run := results[place].run).state not in FINAL}
    if returned:
        batches.give_back(db, returned)
        lanes.wake(db, lanes.wakes(returned.values()))
    written = set(fresh.values())
    done = [settled for place, settled in enumerate(results) if place in written]
    batches.end(db, batches.encode_ends([settled for settled in done if settled.run.state in FINAL]))
    _SideEffects(done).write(transaction)
    return [place in written or _was_settled(db, settled.run) for place, settled in enumerate(results)]


def _was_settled(db: sqlite3.Connection, run: Run) -> bool:
    values = (to_blob(run.id), run.fence, run.state.value, to_micros(run.wake_at), maybe_micros(run.finished_at))
    return db.execute(STATEMENTS["settled_before"], values).fetchone() is not None


class _SideEffects:
    """What results write beside the runs: attempts, signals of free room in limited queues, events, effects of ends."""

    def __init__(self, results: Sequence[Settled]) -> None:
        self._results = results
        self._attempts = [attempt_values(settled.attempt) for settled in results if settled.attempt is not None]
        groups = groupby((settled.run for settled in results), key=attrgetter("owner", "state"))
        self._groups = [(owner, state, list(runs)) for (owner, state), runs in groups]
        ended = [settled.run for settled in results if settled.run.state in FINAL]
        self._effects = [(run, effects) for run in ended if (effects := effects_of_end(run)) is not None]
        self._gates_left = {run.gate: run.finished_at for run, effects in self._effects if effects.leaves_gate}

    def write(self, transaction: Transaction) -> None:
        db = transaction.db
        if self._attempts:
            db.executemany(STATEMENTS["add_attempts"], self._attempts)
        if limited := queues.limited(db):
            for settled in self._results:
                if settled.run.spec.queue in limited:
                    transaction.due(settled.left_at)
        for owner, state, runs in self._groups:
            if state in FINAL:
                transaction.emit(end_of_run(state), owner, *[run.id for run in runs])
            else:
                transaction.due(min(run.wake_at for run in runs))
        for run, effects in self._effects:
            if effects.drops_secrets:
                db.execute(STATEMENTS["drop_secrets"], (to_blob(run.id),))
            if effects.frees_key:
                db.execute(STATEMENTS["delete_records"], key_row(run)[:4])
            if effects.is_letter:
                db.execute(STATEMENTS["insert_letter"], {"id": to_blob(run.id), "blocks": effects.blocks_gate})
        for gate, left_at in self._gates_left.items():  # once for each: what is woken wakes the next when it ends
            if gate is not None and left_at is not None:
                wake_next(transaction, gate, left_at)


def stops(db: sqlite3.Connection, node: NodeId) -> Mapping[RunId, Reason]:
    """The open stop requests for runs that a node holds."""
    found = db.execute(STATEMENTS["stops"], (to_blob(node),))
    return {RunId(to_hex(run_id)): Reason(stop) for run_id, stop in found}


def held(db: sqlite3.Connection, runs: Sequence[Run]) -> list[bool]:
    """Which of the runs their nodes still hold under the same fence."""
    places = {found.place for found in batches.find(db, runs) if found.state in HELD}
    return [place in places for place in range(len(runs))]


def held_by(db: sqlite3.Connection, node: NodeId, until: datetime) -> list[Run]:
    """The runs that a node holds and that wake up to a moment."""
    return [ROWS.run(row) for row in db.execute(STATEMENTS["held_by"], (to_blob(node), to_micros(until)))]


def orphans(db: sqlite3.Connection, limit: int) -> list[Run]:
    """Held runs whose node is not registered."""
    return [ROWS.run(row) for row in db.execute(STATEMENTS["orphans"], {"limit": limit})]
