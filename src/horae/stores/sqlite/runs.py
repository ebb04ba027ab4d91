"""The life of a run in SQLite, from its start to its end, and the nodes that hold it."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from horae.core.decisions.results import Settled
from horae.core.effects import effects_of_end
from horae.core.events import end_of_run
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import NodeId, Reason, Run, RunId
from horae.stores.common.records import key_row
from horae.stores.sqlite import batches, queues
from horae.stores.sqlite.codecs import ROWS, attempt_values, settled_values, to_blob, to_hex, to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.gates import wake_next


def start(transaction: Transaction, runs: Sequence[Run]) -> list[bool]:
    """Write that attempts began, or their progress, if the fences still hold."""
    held = [found for found in batches.find(transaction.db, runs) if found.state in HELD]
    batches.start(transaction.db, {found.seq: runs[found.place] for found in held})
    places = {found.place for found in held}
    return [place in places for place in range(len(runs))]


def settling(results: Sequence[Settled]) -> Callable[[Transaction], list[bool]]:
    """Writes results whose fences still hold.

    Ends of held runs, which most results are, are encoded before the write lock is taken, and written without reading
    the runs first: the count shows whether all of them were still held, and if not they are rolled back and sorted out.
    """
    if not all(settled.run.state in FINAL and settled.was_held for settled in results):
        return lambda transaction: _settle(transaction, results)
    ends = batches.encode_ends([settled.run for settled in results])
    side_effects = _SideEffects(results)

    def settle(transaction: Transaction) -> list[bool]:
        db = transaction.db
        db.execute("SAVEPOINT ends")
        all_held = batches.end_held(db, ends) == len(results)
        if not all_held:
            db.execute("ROLLBACK TO ends")
        db.execute("RELEASE ends")
        if not all_held:
            return _settle(transaction, results)
        side_effects.write(transaction)
        return [True] * len(results)

    return settle


def _settle(transaction: Transaction, results: Sequence[Settled]) -> list[bool]:
    """Write results one by one; one that was written before and is sent again holds as well."""
    db, fresh = transaction.db, dict[int, int]()  # places by seq: of several results of a run the first is written
    for found in batches.find(db, [settled.run for settled in results]):
        if found.state in (HELD if results[found.place].was_held else WAITING):
            fresh.setdefault(found.seq, found.place)
    ended = {seq: run for seq, place in fresh.items() if (run := results[place].run).state in FINAL}
    returned = {seq: results[place].run for seq, place in fresh.items() if seq not in ended}
    if ended:
        batches.end(db, ended)
    if returned:
        batches.give_back(db, returned)
    written = set(fresh.values())
    _SideEffects([settled for place, settled in enumerate(results) if place in written]).write(transaction)
    return [place in written or _was_settled(db, settled.run) for place, settled in enumerate(results)]


def _was_settled(db: sqlite3.Connection, run: Run) -> bool:
    return db.execute(STATEMENTS["already_settled"], settled_values(run)).fetchone() is not None


class _SideEffects:
    """What results bring with them: records of attempts, places in limited queues, events, and effects of ends."""

    def __init__(self, results: Sequence[Settled]) -> None:
        self._results = results
        self._attempts = attempt_values(results)
        groups = groupby((settled.run for settled in results), key=attrgetter("owner", "state"))
        self._groups = [(owner, state, list(runs)) for (owner, state), runs in groups]
        ended = [settled.run for settled in results if settled.run.state in FINAL]
        self._effects = [(run, effects) for run in ended if (effects := effects_of_end(run)) is not None]

    def write(self, transaction: Transaction) -> None:
        db = transaction.db
        if self._attempts:
            db.executemany(STATEMENTS["insert_attempt"], self._attempts)
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
                db.execute(STATEMENTS["delete_record"], key_row(run)[:4])
            if effects.is_letter:
                db.execute(STATEMENTS["insert_letter"], {"id": to_blob(run.id), "blocks": effects.blocks_gate})
            if effects.leaves_gate and run.gate is not None and run.finished_at is not None:
                wake_next(transaction, run.gate, run.finished_at)


def stops(db: sqlite3.Connection, node: NodeId) -> Mapping[RunId, Reason]:
    """The stop requests that are open for runs which a node holds."""
    found = db.execute(STATEMENTS["stops"], (to_blob(node),))
    return {RunId(to_hex(run_id)): Reason(stop) for run_id, stop in found}


def held(db: sqlite3.Connection, runs: Sequence[Run]) -> list[bool]:
    """Which of the runs their nodes still hold under the same fence."""
    places = {found.place for found in batches.find(db, runs) if found.state in HELD}
    return [place in places for place in range(len(runs))]


def held_by(db: sqlite3.Connection, node: NodeId, until: datetime) -> list[Run]:
    """Everything that a node holds of what wakes up to a moment."""
    return [ROWS.run(row) for row in db.execute(STATEMENTS["held_by"], (to_blob(node), to_micros(until)))]


def orphans(db: sqlite3.Connection, limit: int) -> list[Run]:
    """Held runs whose node is not registered."""
    return [ROWS.run(row) for row in db.execute(STATEMENTS["orphans"], {"limit": limit})]
