"""Schedules that are declared in code, in SQLite: every version of each that was ever seen."""

import sqlite3
from collections.abc import Sequence

from horae.core.records import Declaration
from horae.stores.sqlite.codecs import to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction


def declarations(db: sqlite3.Connection, owner: str) -> list[Declaration]:
    """Every version of every declared schedule of an owner."""
    return [
        Declaration(app=app, key=key, digest=digest, seen_at=to_time(seen_at))
        for app, key, digest, seen_at in db.execute(STATEMENTS["declarations"], (owner,))
    ]


def declare(transaction: Transaction, owner: str, declared: Sequence[Declaration], renew: bool) -> None:
    """Note versions that were not seen before; with `renew` those that were count as seen now."""
    rows = [(owner, each.app, each.key, each.digest, to_micros(each.seen_at)) for each in declared]
    transaction.db.executemany(STATEMENTS["declare_anew" if renew else "declare"], rows)


def forget(transaction: Transaction, owner: str, app: str, keys: Sequence[str]) -> None:
    """Forget every version of some schedules."""
    transaction.db.executemany(STATEMENTS["forget"], [(owner, app, key) for key in keys])
