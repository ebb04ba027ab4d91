"""Small records in SQLite: idempotency receipts and declared schedules, by their keys."""

import sqlite3
from datetime import datetime

from horae.core.records import RECEIPT_LIFE, Declaration, Receipt
from horae.stores.sqlite.codecs import to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS


def receipt(db: sqlite3.Connection, owner: str, key: str, now: datetime) -> Receipt | None:
    """The receipt of an earlier request, while it is valid."""
    which = {"owner": owner, "key": key, "valid_since": to_micros(now - RECEIPT_LIFE)}
    row = db.execute(STATEMENTS["receipt"], which).fetchone()
    if row is None:
        return None
    return Receipt(owner=row[0], key=row[1], fingerprint=row[2], answer=row[3], created_at=to_time(row[4]))


def declarations(db: sqlite3.Connection, owner: str) -> list[Declaration]:
    """Every version of every declared schedule of an owner."""
    return [
        Declaration(owner=owner, app=app, key=key, digest=digest, seen_at=to_time(seen_at))
        for app, key, digest, seen_at in db.execute(STATEMENTS["declarations"], (owner,))
    ]
