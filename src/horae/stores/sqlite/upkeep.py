"""Heartbeats in SQLite, and the deletion of old rows."""

from datetime import datetime, timedelta

from horae.core.model import NodeId
from horae.core.records import IDEMPOTENCY_LIFE
from horae.ports.events import EVENT_LIFE
from horae.ports.store import Beat
from horae.stores.sqlite.codecs import MICROSECOND, ROWS, to_blob, to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction


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


def expire(transaction: Transaction, now: datetime, limit: int) -> int:
    """Delete old idempotency records and events, at most `limit` rows of each."""
    lives = (("expire_idempotency", IDEMPOTENCY_LIFE), ("expire_events", EVENT_LIFE))
    return sum(
        transaction.db.execute(STATEMENTS[name], {"before": to_micros(now - life), "limit": limit}).rowcount
        for name, life in lives
    )


def prune(transaction: Transaction, before: int, limit: int) -> int:
    """Delete runs, skips, cancelled jobs and blobs from before a time; at most `limit` rows of each."""
    which = {"before": before, "limit": limit}
    transaction.db.execute(STATEMENTS["prune_attempts"], which)  # before their runs, by which they are found
    transaction.db.execute(STATEMENTS["prune_letters"], which)
    runs = transaction.db.execute(STATEMENTS["prune_runs"], which).rowcount
    transaction.db.execute(STATEMENTS["prune_trails"], which)  # before their jobs
    statements = ("prune_skips", "prune_jobs", "prune_blobs")
    return runs + sum(transaction.db.execute(STATEMENTS[name], which).rowcount for name in statements)
