"""The real SQLite store on a database in memory, without the cost of a disk or of migrations."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

from horae.stores.sqlite.database import Database
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.migrations.apply import migrate
from horae.stores.sqlite.store import SqliteStore
from tests.simulation.wire import finished

T = TypeVar("T")


class _InMemory(Database):
    """A database with a single connection."""

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))
        self.connection = self._connect()

    def prepare(self) -> None:
        """Do nothing: there is no file."""

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    def writer(self) -> sqlite3.Connection:
        return self.connection


@cache
def _database() -> _InMemory:
    """One database for all lives of this process: preparing the statements takes longer than emptying the tables."""
    database = _InMemory()
    database.use(migrate)
    return database


@cache
def _tables() -> Sequence[str]:
    """The tables that are empty after the migrations."""
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
    """Yield an empty store; `wall` is its clock."""
    store = SqliteStore(":memory:", executor=InlineExecutor(durable=False), wall=wall)
    store._database = _emptied()
    finished(store.open())
    yield store
