"""The real SQLite store in memory: its own code and statements, on a database that costs no disk and no migration."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite_database import Database, migrate
from horae.stores.sqlite_executor import InlineExecutor
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
def _migrated() -> sqlite3.Connection:
    database = _InMemory()
    database.use(migrate)
    return database.connection


@contextmanager
def memory_store(wall: Callable[[], datetime]) -> Iterator[SqliteStore]:
    """A new store; `wall` is its clock."""
    database = _InMemory()
    with closing(database.connection):
        _migrated().backup(database.connection)
        store = SqliteStore(":memory:", executor=InlineExecutor(durable=False), wall=wall)
        store._database = database
        finished(store.open())
        yield store
