"""Receipts of requests in SQLite: one for each owner and key, while it is valid."""

import sqlite3
from datetime import datetime

from horae.core.records import RECEIPT_LIFE, Receipt
from horae.stores.sqlite.codecs import to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction


def receipt(db: sqlite3.Connection, owner: str, key: str, now: datetime) -> Receipt | None:
    """The receipt of an earlier request, while it is valid."""
    which = {"owner": owner, "key": key, "valid_since": to_micros(now - RECEIPT_LIFE)}
    row = db.execute(STATEMENTS["receipt"], which).fetchone()
    if row is None:
        return None
    return Receipt(owner=row[0], key=row[1], fingerprint=row[2], answer=row[3], created_at=to_time(row[4]))


def earlier(db: sqlite3.Connection, new: Receipt) -> Receipt | None:
    """The valid receipt in the place of a new one."""
    return receipt(db, new.owner, new.key, new.created_at)


def write(db: sqlite3.Connection, new: Receipt) -> None:
    """Write a receipt where none is valid."""
    values = (new.owner, new.key, new.fingerprint, new.answer, to_micros(new.created_at))
    db.execute(STATEMENTS["write_receipt"], values)


def keep(transaction: Transaction, new: Receipt) -> Receipt:
    """Keep a receipt unless there is one already; the one that holds."""
    found = earlier(transaction.db, new)
    if found is None:
        write(transaction.db, new)
    return found or new


def expire(transaction: Transaction, now: datetime, limit: int) -> int:
    """Delete receipts that are no longer valid, at most `limit`."""
    which = {"before": to_micros(now - RECEIPT_LIFE), "limit": limit}
    return transaction.db.execute(STATEMENTS["expire_receipts"], which).rowcount
