"""Where SQLite's work is done: on one writer thread with group commit and a few reader threads, or inline."""

import asyncio
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from horae.core.errors import Unavailable
from horae.core.events import EventKind
from horae.core.model import NodeId
from horae.core.signals import Kind, Signal
from horae.stores.sqlite.database import Database, insist, translated

T = TypeVar("T")

READERS = 3
MAX_GROUP = 128  # verbs in one commit; more would keep other processes waiting
POLL_SECONDS = 0.04  # how soon what another process committed is noticed
LOCKED_SECONDS = 10.0  # how long to try for the write lock before the store counts as unavailable

_CLOSED = "the store is closed"


@dataclass(slots=True)
class Transaction:
    """An open write transaction, and what is to be told once it is committed."""

    db: sqlite3.Connection
    due_at: datetime | None = None
    due_now: bool = False
    plan_at: datetime | None = None
    stops: set[NodeId] = field(default_factory=set)
    events: defaultdict[tuple[str, EventKind], list[str]] = field(default_factory=lambda: defaultdict(list))

    def due(self, at: datetime | None) -> None:
        """There will be runs to claim from `at` on; None: right away."""
        if at is None:
            self.due_now = True
        else:
            self.due_at = at if self.due_at is None else min(self.due_at, at)

    def plan(self, at: datetime | None) -> None:
        """There will be jobs to plan from `at` on; None when there are none."""
        if at is not None:
            self.plan_at = at if self.plan_at is None else min(self.plan_at, at)

    def stop(self, node: NodeId) -> None:
        """A run of the node is to be stopped."""
        self.stops.add(node)

    def emit(self, kind: EventKind, owner: str, *subjects: str) -> None:
        """Write an event about jobs or runs of an owner with the commit."""
        self.events[owner, kind] += subjects


def signals_of(transactions: Sequence[Transaction]) -> list[Signal]:
    """What the transactions of one commit have to tell, each thing once."""
    due = [each.due_at for each in transactions if each.due_at is not None]
    plan = [each.plan_at for each in transactions if each.plan_at is not None]
    stops = {node for each in transactions for node in each.stops}
    return [
        *([Signal(kind=Kind.DUE)] if any(each.due_now for each in transactions) else []),
        *([Signal(kind=Kind.DUE, at=min(due))] if due else []),
        *([Signal(kind=Kind.PLAN, at=min(plan))] if plan else []),
        *(Signal(kind=Kind.STOP, node=node) for node in sorted(stops)),
    ]


Heard = Callable[[Sequence[Signal]], None]
LastWords = Callable[[sqlite3.Connection, Sequence[Transaction]], None]


def _nothing_more(db: sqlite3.Connection, transactions: Sequence[Transaction]) -> None:
    """Transactions that write nothing but what their verbs do."""


class SqliteExecutor(Protocol):
    """Does work on connections; a write is answered once it is committed."""

    async def open(self, database: Database, heard: Heard, before_commit: LastWords = _nothing_more) -> None:
        """Begin; `heard` is called on the event loop with the signals of each commit.

        `before_commit` writes what the verbs of a commit have in common, in the same transaction.
        """

    async def close(self) -> None:
        """Finish what was handed in, and disconnect."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do work that has its own connection."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a write transaction."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work on one state of the database."""

    def listen(self, listening: bool) -> None:
        """Whether anybody wants to know that another process committed something."""


class InlineExecutor:
    """Everything at once, in the calling coroutine: for simulations that must repeat exactly.

    What need not outlive a power cut can do without the waits for the disk (`durable=False`).
    """

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._db: sqlite3.Connection | None = None
        self._heard: Heard = lambda signals: None
        self._before_commit: LastWords = _nothing_more

    async def open(self, database: Database, heard: Heard, before_commit: LastWords = _nothing_more) -> None:
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
            _begin(db)
            try:
                answer = work(transaction)
                self._before_commit(db, [transaction])
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
        self._heard(signals_of([transaction]))
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return _read(self._connection(), work)

    def listen(self, listening: bool) -> None:
        """A simulation has no other process."""

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
        self._inbox: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()  # None: look at the flags
        self._readers = ThreadPoolExecutor(readers, "horae-sqlite-reader")
        self._local = threading.local()
        self._read_connections: list[sqlite3.Connection] = []
        self._thread: threading.Thread | None = None
        self._writer: sqlite3.Connection | None = None  # of the writer thread; None after an error, until it is needed
        self._version = 0  # of the data, when the writer thread last looked
        self._listening = False
        self._closing = False

    async def open(self, database: Database, heard: Heard, before_commit: LastWords = _nothing_more) -> None:
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._inbox.put(_Write(work, loop, future))
        return await future

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_when_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def listen(self, listening: bool) -> None:
        self._listening = listening
        self._inbox.put(None)

    def _refuse_when_closed(self) -> None:
        if self._thread is None or self._closing:
            raise Unavailable(_CLOSED)

    # --- on a reader thread

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = getattr(self._local, "db", None)
        if db is None:
            with translated():
                db = self._local.db = self._database.reader()
            self._read_connections.append(db)
        return _read(db, work)

    # --- on the writer thread

    def _write_until_closed(self) -> None:
        while not (self._closing and self._inbox.empty()):
            if group := self._next_group():
                self._commit(group)
            if self._listening:
                self._look_for_others()
        if self._writer is not None:
            self._writer.close()
        self._readers.shutdown()  # here and not by yet another thread, which a process that ends no longer lends
        for db in self._read_connections:
            db.close()
        _call_on(self._loop, [lambda: self._ended.set_result(None)])

    def _next_group(self) -> list[_Write]:
        """What waits to be written, after waiting for something; it may be nothing."""
        try:
            first = self._inbox.get(timeout=POLL_SECONDS if self._listening else None)
        except queue.Empty:
            return []
        return [*([] if first is None else [first]), *self._waiting(MAX_GROUP - 1)]

    def _waiting(self, limit: int) -> list[_Write]:
        """What waits to be written, at most so much of it."""
        found: list[_Write] = []
        while len(found) < limit and not self._inbox.empty():
            write = self._inbox.get()
            if write is not None:
                found.append(write)
        return found

    def _commit(self, group: list[_Write]) -> None:
        """Do the verbs in one transaction, and answer them once it is committed."""
        signals: list[Signal] = []
        try:
            with translated():
                signals = self._write_group(group)
        except Exception as exc:  # noqa: BLE001 - it belongs to those who wait for an answer
            self._disconnect()
            for write in group:
                write.error = write.error or exc
        calls: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        for write in group:
            calls.setdefault(write.loop, []).append(write.resolve)
        if signals:
            calls.setdefault(self._loop, []).append(lambda: self._heard(signals))
        for loop, functions in calls.items():
            _call_on(loop, functions)

    def _write_group(self, group: list[_Write]) -> list[Signal]:
        db = self._writer or self._connect()
        _begin(db)
        group += self._waiting(MAX_GROUP - len(group))  # what came while another process had the lock
        alone = len(group) == 1
        done = [transaction for write in group if (transaction := _do(db, write, alone=alone)) is not None]
        if not done:
            _roll_back(db)
            return []
        self._before_commit(db, done)
        db.execute("COMMIT")
        return signals_of(done)

    def _connect(self) -> sqlite3.Connection:
        with translated():
            db = self._writer = _writer(self._database)
            self._version = _data_version(db)
        return db

    def _disconnect(self) -> None:
        """After a failed commit nothing is known: begin again from what is on the disk."""
        db, self._writer = self._writer, None
        if db is not None:
            db.close()

    def _look_for_others(self) -> None:
        """Tell when another connection has committed; commits of the writer's own do not count."""
        try:
            version = _data_version(self._writer or self._connect())
        except (sqlite3.Error, Unavailable):
            self._disconnect()  # the next verb meets the trouble, if it lasts, and tells its caller
            return
        if version != self._version:
            self._version = version
            _call_on(self._loop, [lambda: self._heard([Signal(kind=Kind.ANY)])])


def _data_version(db: sqlite3.Connection) -> int:
    [version] = db.execute("PRAGMA data_version").fetchone()
    return int(version)


def _do(db: sqlite3.Connection, write: _Write, *, alone: bool) -> Transaction | None:
    """Do one verb of a group; when it fails, it is undone without the others, if it is not alone. Answers None then."""
    transaction = Transaction(db)
    if not alone:
        db.execute("SAVEPOINT verb")
    try:
        with translated():
            write.answer = write.work(transaction)
    except Exception as exc:
        write.error = exc
        if not db.in_transaction:  # some errors undo the whole transaction, and so all verbs before
            raise
        if not alone:
            db.execute("ROLLBACK TO verb")
    if not alone:
        db.execute("RELEASE verb")
    return None if write.error else transaction


def _writer(database: Database) -> sqlite3.Connection:
    """A connection that writes, and waits for the lock as `_begin` does.

    SQLite's own wait sleeps for up to a tenth of a second between two tries. Beside a process that writes without a
    pause it missed every gap for seconds; with short sleeps the longest wait was a tenth of that.
    """
    db = database.writer()
    db.execute("PRAGMA busy_timeout = 0")
    return db


def _begin(db: sqlite3.Connection) -> None:
    """Take the write lock."""
    insist(db, "BEGIN IMMEDIATE", LOCKED_SECONDS)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _read(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    with translated():
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            _roll_back(db)


def _call_on(loop: asyncio.AbstractEventLoop, functions: Sequence[Callable[[], None]]) -> None:
    try:
        loop.call_soon_threadsafe(_call_all, functions)
    except RuntimeError:
        if not loop.is_closed():  # whoever waited there is gone, and the commit stands
            raise


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()
