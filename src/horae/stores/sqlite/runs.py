"""The life of a run in SQLite, from its start to its end, and the nodes that hold it."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

from horae.core.events import end_of_run
from horae.core.lifecycle import FINAL, HELD, WAITING
from horae.core.model import Node, NodeId, Reason, Run, RunId, State
from horae.core.release import blocks_key
from horae.core.results import Settled
from horae.ports.store import Beat
from horae.stores.sqlite import batches, queues
from horae.stores.sqlite.claim import wake_next
from horae.stores.sqlite.codecs import (
    MICROSECOND,
    ROWS,
    attempt_values,
    node_from,
    node_values,
    settled_values,
    to_blob,
    to_hex,
    to_micros,
)
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction


def start(transaction: Transaction, runs: Sequence[Run]) -> list[bool]:
    """Write that attempts began, or their progress, if the fences still hold."""
    held = [found for found in batches.find(transaction.db, runs) if found.state in HELD]
    batches.start(transaction.db, {found.seq: runs[found.place] for found in held})
    places = {found.place for found in held}
    return [place in places for place in range(len(runs))]


def settling(results: Sequence[Settled]) -> Callable[[Transaction], list[bool]]:
    """Writes results of held runs if their fences still hold.

    Ends, which most results are, are made ready before the write lock is taken, and written without a look at the runs:
    it shows afterwards whether one of them was not held as it should be, and then they are undone, and sorted out.
    """
    if not all(settled.run.state in FINAL for settled in results):
        return lambda transaction: _settle(transaction, results, HELD)
    ends = batches.encode_ends([settled.run for settled in results])
    aftermath = _Aftermath(results)

    def settle(transaction: Transaction) -> list[bool]:
        db = transaction.db
        db.execute("SAVEPOINT ends")
        all_held = batches.end_held(db, ends) == len(results)
        if not all_held:
            db.execute("ROLLBACK TO ends")
        db.execute("RELEASE ends")
        if not all_held:
            return _settle(transaction, results, HELD)
        aftermath.write(transaction)
        return [True] * len(results)

    return settle


def end_waiting(transaction: Transaction, results: Sequence[Settled]) -> list[bool]:
    """End runs that nobody holds, if they still wait with the same fence."""
    return _settle(transaction, results, WAITING)


def _settle(transaction: Transaction, results: Sequence[Settled], states: Set[State]) -> list[bool]:
    """Write results of runs in some states; one that was written before and is sent again holds as well."""
    db, fresh = transaction.db, dict[int, int]()  # places by seq: of several results of a run the first is written
    for found in batches.find(db, [settled.run for settled in results]):
        if found.state in states:
            fresh.setdefault(found.seq, found.place)
    ended = {seq: run for seq, place in fresh.items() if (run := results[place].run).state in FINAL}
    waiting = {seq: results[place].run for seq, place in fresh.items() if seq not in ended}
    if ended:
        batches.end(db, ended)
    if waiting:
        batches.give_back(db, waiting)
    written = set(fresh.values())
    _Aftermath([settled for place, settled in enumerate(results) if place in written]).write(transaction)
    return [place in written or _was_settled(db, settled.run) for place, settled in enumerate(results)]


def _was_settled(db: sqlite3.Connection, run: Run) -> bool:
    return db.execute(STATEMENTS["already_settled"], settled_values(run)).fetchone() is not None


class _Aftermath:
    """What goes with results: records of attempts, places in limited queues, and all that ends with a run."""

    def __init__(self, results: Sequence[Settled]) -> None:
        self._results = results
        self._attempts = attempt_values(results)
        groups = groupby((settled.run for settled in results), key=attrgetter("owner", "state"))
        self._groups = [(owner, state, list(runs)) for (owner, state), runs in groups]
        self._burdened = [
            settled.run for settled in results if settled.run.state in FINAL and _is_burdened(settled.run)
        ]

    def write(self, transaction: Transaction) -> None:
        if self._attempts:
            transaction.db.executemany(STATEMENTS["insert_attempt"], self._attempts)
        if limited := queues.limited(transaction.db):
            for settled in self._results:
                if settled.run.spec.queue in limited:
                    transaction.due(_left_at(settled))
        for owner, state, runs in self._groups:
            if state in FINAL:
                transaction.tell(end_of_run(state), owner, *[run.id for run in runs])
            else:
                transaction.due(min(run.wake_at for run in runs))
        for run in self._burdened:
            _see_off(transaction, run)


def _left_at(settled: Settled) -> datetime:
    """When the run left its node; for one that never started, when it wakes again."""
    run, attempt = settled.run, settled.attempt
    return run.finished_at or (run.wake_at if attempt is None else attempt.ended_at)


def _is_burdened(run: Run) -> bool:
    """Whether more ends with a run than the run itself."""
    spec = run.spec
    return run.state is State.FAILED or run.gate is not None or spec.key is not None or spec.secrets is not None


def _see_off(transaction: Transaction, run: Run) -> None:
    """What goes with the end of a run: secrets and keys that are done with, a dead letter, the next run."""
    db = transaction.db
    if run.spec.secrets is not None and run.state is State.SUCCEEDED:
        db.execute(STATEMENTS["drop_secrets"], (to_blob(run.id),))
    if run.spec.key is not None and run.one_shot:
        db.execute(STATEMENTS["free_key"], (run.owner, run.spec.key, to_blob(run.job_id)))
    if run.state is State.FAILED:
        db.execute(STATEMENTS["insert_letter"], {"id": to_blob(run.id), "blocks": blocks_key(run)})
    if run.gate is not None and run.finished_at is not None:  # also if it blocks: one before it may have waited for it
        wake_next(transaction, run.gate, run.finished_at)


def request_stop(transaction: Transaction, run_ids: Iterable[RunId], reason: Reason) -> list[NodeId | None]:
    """Note a stop request with each run that a node holds."""
    nodes = [_request_stop(transaction.db, run_id, reason) for run_id in run_ids]
    for node in nodes:
        if node is not None:
            transaction.stop(node)
    return nodes


def _request_stop(db: sqlite3.Connection, run_id: RunId, reason: Reason) -> NodeId | None:
    held = db.execute(STATEMENTS["request_stop"], {"id": to_blob(run_id), "reason": reason.value}).fetchall()
    return NodeId(to_hex(held[0][0])) if held else None


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


def register(transaction: Transaction, node: Node) -> None:
    """Make a node and its tasks known."""
    transaction.db.execute(STATEMENTS["register_node"], node_values(node))
    transaction.db.executemany(STATEMENTS["register_task"], node.tasks.items())


def beat(
    transaction: Transaction,
    node: NodeId,
    now: datetime,
    running: int,
    dead_after: timedelta,
    wall_ahead: timedelta,
) -> Beat | None:
    """Renew a node's lease, and tell how it stands; None when it was buried."""
    values = (to_micros(now), running, wall_ahead // MICROSECOND, to_blob(node))
    renewed = transaction.db.execute(STATEMENTS["beat"], values)
    if renewed.rowcount == 0:
        return None
    alive = transaction.db.execute(STATEMENTS["nodes_since"], (to_micros(now - dead_after),))
    return Beat(nodes=[node_from(row) for row in alive])


def unregister(transaction: Transaction, node: NodeId) -> None:
    """A node leaves in order; its gates are free."""
    transaction.db.execute(STATEMENTS["unregister_node"], (to_blob(node),))
    transaction.db.execute(STATEMENTS["free_gates_of_node"], (to_blob(node),))


def bury(transaction: Transaction, now: datetime, dead_after: timedelta) -> list[NodeId]:
    """Remove nodes whose last beat is too old."""
    dead = transaction.db.execute(STATEMENTS["bury_nodes"], (to_micros(now - dead_after),)).fetchall()
    return [NodeId(to_hex(node)) for (node,) in dead]


def orphans(db: sqlite3.Connection, limit: int) -> list[Run]:
    """Held runs whose node is not registered."""
    return [ROWS.run(row) for row in db.execute(STATEMENTS["orphans"], {"limit": limit})]


def prune(transaction: Transaction, before: int, limit: int) -> int:
    """Drop what ended, or was kept, before a moment; at most `limit` rows of each kind."""
    which = {"before": before, "limit": limit}
    transaction.db.execute(STATEMENTS["prune_attempts"], which)  # found through their runs, so before these
    transaction.db.execute(STATEMENTS["prune_letters"], which)
    statements = ("prune_runs", "prune_skips", "prune_blobs")
    return sum(transaction.db.execute(STATEMENTS[name], which).rowcount for name in statements)
