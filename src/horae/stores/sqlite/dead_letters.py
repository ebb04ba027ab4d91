"""Dead letters in SQLite: what becomes of them, and by what they failed."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from horae.core.model import DISCARDED, RunId
from horae.core.records import Receipt
from horae.core.release import blocks_key
from horae.ports.reader import ErrorGroup, RunFilter
from horae.ports.store import Resolution
from horae.stores.common.codecs import decode_error
from horae.stores.sqlite import batches, idempotency
from horae.stores.sqlite.claim import wake_next
from horae.stores.sqlite.codecs import ROWS, to_blob, to_hex, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction
from horae.stores.sqlite.list_queries import dead_letter_groups
from horae.stores.sqlite.reads import MAX_DEPTH


def resolve(transaction: Transaction, resolutions: Sequence[Resolution], now: datetime) -> list[bool | Receipt]:
    """Resolve each letter that is still one, unless its request was answered before."""
    return [_resolve(transaction, resolution, now) for resolution in resolutions]


def _resolve(transaction: Transaction, resolution: Resolution, now: datetime) -> bool | Receipt:
    db, receipt, successor = transaction.db, resolution.receipt, resolution.successor
    if receipt is not None and (earlier := idempotency.earlier(db, receipt)) is not None:
        return earlier
    row = db.execute(STATEMENTS["letter"], (to_blob(resolution.run_id),)).fetchone()
    if row is None:
        return False
    letter = ROWS.run(row)
    db.execute(STATEMENTS["resolve_run"], (successor.id if successor else DISCARDED, to_blob(letter.id)))
    db.execute(STATEMENTS["delete_letter"], (to_blob(letter.id),))
    if successor is not None:
        batches.insert(db, batches.encode([successor]))
        transaction.due(successor.wake_at)
    elif letter.gate is not None and blocks_key(letter):
        wake_next(transaction, letter.gate, now)
    if receipt is not None:
        idempotency.write(db, receipt)
    return True


def groups(db: sqlite3.Connection, which: RunFilter) -> list[ErrorGroup]:
    """Letters that failed alike, the most frequent first."""
    return [
        ErrorGroup(
            error=error,
            count=count,
            oldest_at=to_time(oldest),
            newest_at=to_time(newest),
            task=task,
            example=RunId(to_hex(example)),
        )
        for task, text, count, oldest, newest, example in dead_letter_groups(db, which, MAX_DEPTH)
        if (error := decode_error(text)) is not None
    ]
