"""The real SQLite store in memory: its own code and statements, on a database that costs no disk and no migration."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

from horae.stores.sqlite.database import Database, migrate
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.simulation.wire import finished

T = TypeVar("T")


class _InMemory(Database):
    """A database that there is only one connection to."""

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))
        self.connection = self._connect()

    def prepare(self) -> None:
        """There is no file."""

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    def writer(self) -> sqlite3.Connection:
        return self.connection


@cache
def _database() -> _InMemory:
    """One for all lives of this process: to prepare every statement again takes longer than to empty the tables."""
    database = _InMemory()
    database.use(migrate)
    return database


@cache
def _tables() -> Sequence[str]:
    """What lives write to: every table but those that a migrated database has rows in."""
    db = _database().connection
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    return [name for name in names if db.execute(f'SELECT 1 FROM "{name}"').fetchone() is None]


def _emptied() -> _InMemory:
    database = _database()
    db = database.connection
    if db.in_transaction:
        db.execute("ROLLBACK")
    for table in _tables():
        db.execute(f'DELETE FROM "{table}"')
    return database


@contextmanager
def memory_store(wall: Callable[[], datetime]) -> Iterator[SqliteStore]:
    """A new store; `wall` is its clock."""
    store = SqliteStore(":memory:", executor=InlineExecutor(durable=False), wall=wall)
    store._database = _emptied()
    finished(store.open())
    yield store
