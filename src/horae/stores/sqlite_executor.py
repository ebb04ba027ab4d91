"""Where SQLite's work is done: on one writer thread with group commit and a few reader threads, or inline."""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from horae.core.errors import Unavailable
from horae.core.model import NodeId
from horae.store import Kind, Signal
from horae.stores.sqlite_database import Database, error_code, translated

T = TypeVar("T")

READERS = 3
MAX_GROUP = 128  # verbs in one commit; more would keep other processes waiting
POLL_SECONDS = 0.04  # how soon what another process committed is noticed
LOCKED_SECONDS = 20.0  # how long to try for the write lock before the store counts as unavailable

_CLOSED = "the store is closed"


@dataclass(slots=True)
class Transaction:
    """An open write transaction, and what is to be told once it is committed."""

    db: sqlite3.Connection
    due_at: datetime | None = None
    plan_at: datetime | None = None
    stops: set[NodeId] = field(default_factory=set)

    def due(self, at: datetime) -> None:
        """There will be runs to claim from `at` on."""
        self.due_at = at if self.due_at is None else min(self.due_at, at)

    def plan(self, at: datetime | None) -> None:
        """There will be jobs to plan from `at` on; None when there are none."""
        if at is not None:
            self.plan_at = at if self.plan_at is None else min(self.plan_at, at)

    def stop(self, node: NodeId) -> None:
        """A run of the node is to be stopped."""
        self.stops.add(node)


def signals_of(transactions: Sequence[Transaction]) -> list[Signal]:
    """What the transactions of one commit have to tell, each thing once."""
    due = [each.due_at for each in transactions if each.due_at is not None]
    plan = [each.plan_at for each in transactions if each.plan_at is not None]
    stops = {node for each in transactions for node in each.stops}
    return [
        *([Signal(kind=Kind.DUE, at=min(due))] if due else []),
        *([Signal(kind=Kind.PLAN, at=min(plan))] if plan else []),
        *(Signal(kind=Kind.STOP, node=node) for node in sorted(stops)),
    ]


Heard = Callable[[Sequence[Signal]], None]


class SqliteExecutor(Protocol):
    """Does work on connections; a write is answered once it is committed."""

    async def open(self, database: Database, heard: Heard) -> None:
        """Connect; `heard` is called on the event loop with the signals of each commit."""

    async def close(self) -> None:
        """Finish what was handed in, and disconnect."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a write transaction."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work on one state of the database."""

    def listen(self, listening: bool) -> None:
        """Whether anybody wants to know what other processes commit."""


class InlineExecutor:
    """Everything at once, in the calling coroutine: for simulations that must repeat exactly."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._heard: Heard = lambda signals: None

    async def open(self, database: Database, heard: Heard) -> None:
        with translated():
            self._db = database.writer()
        self._heard = heard

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    async def write(self, work: Callable[[Transaction], T]) -> T:
        db = self._connection()
        transaction = Transaction(db)
        with translated():
            db.execute("BEGIN IMMEDIATE")
            try:
                answer = work(transaction)
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
        self._heard(signals_of([transaction]))
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated():
            return _read(self._connection(), work)

    def listen(self, listening: bool) -> None:
        """Nobody else is there."""

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable(_CLOSED)
        return self._db


@dataclass(slots=True)
class _Write:
    """A verb on its way through the writer thread."""

    work: Callable[[Transaction], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    answer: Any = None
    error: BaseException | None = None

    def resolve(self) -> None:
        if self.future.cancelled():
            return
        if self.error is None:
            self.future.set_result(self.answer)
        else:
            self.future.set_exception(self.error)


class ThreadedExecutor:
    """One writer thread, whose verbs share commits, and a few reader threads."""

    def __init__(self, readers: int = READERS) -> None:
        self._inbox: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(readers, "horae-sqlite-reader")
        self._local = threading.local()
        self._read_connections: list[sqlite3.Connection] = []
        self._thread: threading.Thread | None = None
        self._database: Database | None = None
        self._writer: sqlite3.Connection | None = None  # of the writer thread alone; None after an error, until it is needed
        self._seen: int | None = None  # PRAGMA data_version when the writer last looked
        self._listening = False
        self._heard: Heard = lambda signals: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed: asyncio.Future[None] | None = None

    async def open(self, database: Database, heard: Heard) -> None:
        self._loop = asyncio.get_running_loop()
        self._database = database
        self._heard = heard
        self._closed = self._loop.create_future()
        self._thread = threading.Thread(target=self._write_all, name="horae-sqlite-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        if self._thread is None or self._closed is None:
            return
        self._database = None  # whoever comes later is refused
        self._inbox.put(None)
        await asyncio.shield(self._closed)
        self._thread.join()
        self._thread = None
        self._readers.shutdown(wait=False)
        for db in self._read_connections:
            db.close()

    def listen(self, listening: bool) -> None:
        if listening and not self._listening and self._thread is not None:
            self._listening = True
            self._inbox.put(_Write(lambda _: None, self._running_loop(), self._running_loop().create_future()))
        self._listening = listening

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._inbox.put(_Write(work, loop, future))
        return await future

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated():
            return _read(self._read_connection(), work)
