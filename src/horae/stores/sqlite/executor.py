"""Runs work on SQLite connections: on a writer thread with group commit and a few reader threads, or inline.

Lists have readers of their own, and a time limit: however many are asked for, the engine does not wait for them.
"""

import asyncio
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from horae.core.errors import Unavailable
from horae.core.events import EventKind
from horae.core.signals import Kind, Signal, merged
from horae.stores.sqlite.database import Database, Readers, execute_when_free, roll_back, snapshot, translated

T = TypeVar("T")

READERS = 3  # for the engine, and for look-ups
LIST_READERS = 3
LIST_SECONDS = 2.0  # that a list may take; those that look at a bounded number of rows take far less
MAX_GROUP = 128  # verbs in one commit; more would make other processes wait too long
POLL_SECONDS = 0.04  # between checks for commits of other processes
LOCKED_SECONDS = 10.0  # wait for the write lock; after it the store counts as unavailable

_CLOSED = "the store is closed"


@dataclass(slots=True)
class Transaction:
    """An open write transaction, with the signals that its commit sends and the events that it writes."""

    db: sqlite3.Connection
    signals: list[Signal] = field(default_factory=list)
    events: defaultdict[tuple[str, EventKind], list[str]] = field(default_factory=lambda: defaultdict(list))

    def due(self, at: datetime) -> None:
        """Signal that runs can be claimed from a time on."""
        self.signals.append(Signal(kind=Kind.DUE, at=at))

    def emit(self, kind: EventKind, owner: str, *subjects: str) -> None:
        """Write an event about jobs or runs of an owner with the commit."""
        self.events[owner, kind] += subjects


def _signals_of(transactions: Sequence[Transaction]) -> list[Signal]:
    return merged(signal for transaction in transactions for signal in transaction.signals)


OnSignals = Callable[[Sequence[Signal]], None]
BeforeCommit = Callable[[sqlite3.Connection, Sequence[Transaction]], None]


def _nothing(db: sqlite3.Connection, transactions: Sequence[Transaction]) -> None:
    """Add nothing to a commit."""


class SqliteExecutor(Protocol):
    """Runs work on connections; a write returns once it is committed."""

    async def open(self, database: Database, heard: OnSignals, before_commit: BeforeCommit = _nothing) -> None:
        """Connect; `heard` gets the signals of each commit on the event loop, `before_commit` adds to each commit."""

    async def close(self) -> None:
        """Finish the work that was handed in, and disconnect."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run work that has its own connection."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run work in a write transaction."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on one snapshot of the database."""

    async def browse(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work of a list as `read` does; raises Unavailable when it takes too long."""

    def listen(self, listening: bool) -> None:
        """Switch signals for commits of other processes on or off."""


class InlineExecutor:
    """Runs everything in the calling coroutine, for simulations that must repeat exactly.

    `durable=False` does not wait for the disk: for data that need not survive a power cut.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._db: sqlite3.Connection | None = None

    async def open(self, database: Database, heard: OnSignals, before_commit: BeforeCommit = _nothing) -> None:
        self._db = _writer(database)
        if not self._durable:
            self._db.execute("PRAGMA synchronous = OFF")
        self._heard = heard
        self._before_commit = before_commit

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        db = self._connection()
        transaction = Transaction(db)
        with translated():
            execute_when_free(db, "BEGIN IMMEDIATE", LOCKED_SECONDS)
            try:
                answer = work(transaction)
                self._before_commit(db, [transaction])
                db.execute("COMMIT")
            finally:
                roll_back(db)
        self._heard(_signals_of([transaction]))
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return snapshot(self._connection(), work)

    async def browse(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self.read(work)

    def listen(self, listening: bool) -> None:
        """Do nothing: a simulation has no other process."""

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable(_CLOSED)
        return self._db


@dataclass(slots=True)
class _Write:
    """A verb for the writer thread, with its outcome."""

    work: Callable[[Transaction], Any]
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
    """One writer thread, whose verbs share commits, and reader threads, some of them for lists alone."""

    def __init__(self, readers: int = READERS, *, list_seconds: float = LIST_SECONDS) -> None:
        self._inbox: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()  # None: a flag has changed
        self._readers = Readers("horae-sqlite-reader", readers)
        self._list_readers = Readers("horae-sqlite-list", LIST_READERS, seconds=list_seconds)
        self._thread: threading.Thread | None = None
        self._writer: sqlite3.Connection | None = None  # None after an error, until the next verb
        self._version = 0  # of the data, when the writer thread last checked for other commits
        self._listening = False
        self._closing = False

    async def open(self, database: Database, heard: OnSignals, before_commit: BeforeCommit = _nothing) -> None:
        self._database = database
        self._heard = heard
        self._before_commit = before_commit
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._connect)
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._write_until_closed, name="horae-sqlite-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        if self._thread is None:
            return
        self._closing = True
        self._inbox.put(None)
        await self._ended
        self._thread.join()
        self._thread = None

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._refuse_when_closed()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put(_Write(work, future))
        return await future

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_when_closed()
        return await self._readers.run(self._database, work)

    async def browse(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_when_closed()
        return await self._list_readers.run(self._database, work)

    def listen(self, listening: bool) -> None:
        self._listening = listening
        self._inbox.put(None)

    def _refuse_when_closed(self) -> None:
        if self._thread is None or self._closing:
            raise Unavailable(_CLOSED)

    # --- on the writer thread

    def _write_until_closed(self) -> None:
        while not (self._closing and self._inbox.empty()):
            if group := self._next_group():
                self._commit(group)
            if self._listening:
                self._check_for_other_commits()
        if self._writer is not None:
            self._writer.close()
        for readers in (self._readers, self._list_readers):
            readers.close()  # on this thread, because a process that exits cannot start another
        _call_on(self._loop, [lambda: self._ended.set_result(None)])

    def _next_group(self) -> list[_Write]:
        """Wait for verbs and return them; none when a flag has changed or the time for a check has come."""
        try:
            first = self._inbox.get(timeout=POLL_SECONDS if self._listening else None)
        except queue.Empty:
            return []
        return [*([] if first is None else [first]), *self._waiting(MAX_GROUP - 1)]

    def _waiting(self, limit: int) -> list[_Write]:
        """The verbs in the inbox, up to a limit."""
        found: list[_Write] = []
        while len(found) < limit and not self._inbox.empty():
            write = self._inbox.get()
            if write is not None:
                found.append(write)
        return found

    def _commit(self, group: list[_Write]) -> None:
        """Run verbs in one transaction, and resolve their futures once it is committed."""
        signals: list[Signal] = []
        try:
            with translated():
                signals = self._write_group(group)
        except Exception as exc:  # noqa: BLE001 - it is raised in the callers
            self._disconnect()
            for write in group:
                write.error = write.error or exc
        calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        for write in group:
            calls.setdefault(write.future.get_loop(), []).append(write.resolve)
        if signals:
            calls.setdefault(self._loop, []).append(lambda: self._heard(signals))
        for loop, functions in calls.items():
            _call_on(loop, functions)

    def _write_group(self, group: list[_Write]) -> list[Signal]:
        db = self._writer or self._connect()
        execute_when_free(db, "BEGIN IMMEDIATE", LOCKED_SECONDS)
        group += self._waiting(MAX_GROUP - len(group))  # arrived while another process had the lock
        alone = len(group) == 1
        done = [transaction for write in group if (transaction := _do(db, write, alone=alone)) is not None]
        if not done:
            roll_back(db)
            return []
        self._before_commit(db, done)
        db.execute("COMMIT")
        return _signals_of(done)

    def _connect(self) -> sqlite3.Connection:
        with translated():
            db = self._writer = _writer(self._database)
            self._version = _data_version(db)
        return db

    def _disconnect(self) -> None:
        """Close the connection: after a failed commit its state is unknown."""
        db, self._writer = self._writer, None
        if db is not None:
            db.close()

    def _check_for_other_commits(self) -> None:
        """Send a signal if another connection has committed; the writer's own commits do not count."""
        try:
            version = _data_version(self._writer or self._connect())
        except (sqlite3.Error, Unavailable):
            self._disconnect()  # if the error lasts, the next verb reports it
            return
        if version != self._version:
            self._version = version
            _call_on(self._loop, [lambda: self._heard([Signal(kind=Kind.ANY)])])


def _data_version(db: sqlite3.Connection) -> int:
    [version] = db.execute("PRAGMA data_version").fetchone()
    return int(version)


def _do(db: sqlite3.Connection, write: _Write, *, alone: bool) -> Transaction | None:
    """Run one verb of a group; if it fails beside others, it alone is rolled back. Returns None then."""
    transaction = Transaction(db)
    if not alone:
        db.execute("SAVEPOINT verb")
    try:
        with translated():
            write.answer = write.work(transaction)
    except Exception as exc:
        write.error = exc
        if not db.in_transaction:  # some errors roll back the whole transaction, with the verbs before
            raise
        if not alone:
            db.execute("ROLLBACK TO verb")
    if not alone:
        db.execute("RELEASE verb")
    return None if write.error else transaction


def _writer(database: Database) -> sqlite3.Connection:
    """A connection that writes, and waits for the lock by `execute_when_free` alone.

    SQLite's own wait sleeps for up to 0.1 s between two tries. Beside a process that wrote without a pause it missed
    every gap for seconds; with short sleeps the longest wait was a tenth of that.
    """
    db = database.writer()
    db.execute("PRAGMA busy_timeout = 0")
    return db


def _call_on(loop: asyncio.AbstractEventLoop, functions: Sequence[Callable[[], None]]) -> None:
    try:
        loop.call_soon_threadsafe(_call_all, functions)
    except RuntimeError:
        if not loop.is_closed():  # its callers are gone, and the commit stands
            raise


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()
