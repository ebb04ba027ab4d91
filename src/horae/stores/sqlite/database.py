"""The SQLite file: where it may be, its connections and their settings, and the translation of errors."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from horae.core.errors import Misconfigured, Unavailable
from horae.stores.common.listing import too_slow
from horae.stores.common.statements import load

OLDEST = (3, 35, 0)  # RETURNING came with it
BUSY_SECONDS = 5.0
RETRY_SECONDS = 0.001  # between two tries for a lock
CACHE_KIB = 32 * 1024
CHECKPOINT_PAGES = 4000  # 16 MB of write-ahead log; more frequent checkpoints cost time, rarer ones disk space
STEPS = 50_000  # of SQLite's machine between two looks at the clock: some milliseconds
LOG_LIMIT = 64 * 1024 * 1024  # bytes; a longer log is truncated at the next checkpoint

# SQLite needs reliable locks and memory that all processes share; network file systems have neither.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs"}
    | {"gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs"}
)

_TRANSIENT = {
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_NOMEM: "SQLite is out of memory",
    sqlite3.SQLITE_READONLY: "the database cannot be written: the file or its folder is read-only",
    sqlite3.SQLITE_INTERRUPT: "a statement was interrupted",
    sqlite3.SQLITE_IOERR: "the disk of the database gave an input/output error",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged; restore it from a backup",
    sqlite3.SQLITE_FULL: "the disk of the database is full",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_PROTOCOL: "the database is locked by too many processes at once",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
}

STATEMENTS = load("sqlite")

T = TypeVar("T")


@contextmanager
def translated() -> Iterator[None]:
    """Turns errors of the environment into `Unavailable`; errors in statements are raised as they are."""
    try:
        yield
    except sqlite3.Error as exc:
        sentence = _TRANSIENT.get(error_code(exc))
        if sentence is None:
            raise
        raise Unavailable(f"{sentence} ({exc})") from exc


def error_code(exc: sqlite3.Error) -> int:
    """The primary result code of an error; 0 when it has none."""
    return int(getattr(exc, "sqlite_errorcode", 0) or 0) & 0xFF


class Database:
    """One SQLite file and the connections to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Create the file, readable by its owner alone; refuse places where SQLite loses data."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise Misconfigured(f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, OLDEST))} is needed")
        folder = self.path.absolute().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._create()
        except OSError as exc:
            raise Misconfigured(f"the database {self.path} cannot be made or opened: {exc.strerror}") from exc
        kind = file_system_of(folder)
        if kind in NETWORK_FILE_SYSTEMS:
            raise Misconfigured(
                f"{self.path} lies on a network file system ({kind}), where SQLite loses data;"
                " put it on a local disk, or use PostgreSQL"
            )

    def _create(self) -> None:
        """Create the file if it does not exist, without opening an existing one.

        Closing any descriptor of a file drops all locks of the process on it, also those of SQLite's open connections.
        Another process would then take the database for unused, and delete the log that this one still writes to.
        """
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if not self.path.is_file() or not os.access(self.path, os.R_OK | os.W_OK):
                raise

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Create the file if needed, and do work on a connection of its own."""
        self.prepare()
        with translated():
            try:
                with closing(self.writer()) as db:
                    return work(db)
            except sqlite3.DatabaseError as exc:
                if error_code(exc) != sqlite3.SQLITE_NOTADB:
                    raise
                raise Misconfigured(f"{self.path} is not a SQLite database: name another file, or move it") from exc

    def writer(self) -> sqlite3.Connection:
        """A connection that writes; a commit returns when it is on the disk."""
        db = self._connect()
        execute_when_free(db, "PRAGMA journal_mode = WAL", BUSY_SECONDS)  # SQLite itself does not wait for this lock
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
        return db

    def reader(self) -> sqlite3.Connection:
        """A connection that only reads."""
        db = self._connect()
        db.execute("PRAGMA query_only = ON")
        return db

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA secure_delete = OFF")  # some builds overwrite deleted data, which takes time
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.create_function("folded", 1, _folded, deterministic=True)
        return db


def execute_when_free(db: sqlite3.Connection, statement: str, seconds: float) -> None:
    """Execute a statement, with retries for some seconds while another process has the lock that it needs."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            db.execute(statement)
            return
        except sqlite3.OperationalError as exc:
            if error_code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def roll_back(db: sqlite3.Connection) -> None:
    """End a transaction without its writes, if one is open."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def snapshot(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do work that reads on one snapshot of the database."""
    with translated():
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            roll_back(db)


class Readers:
    """Threads that read, each on a connection of its own; with `seconds`, work that takes longer is interrupted."""

    def __init__(self, name: str, threads: int, *, seconds: float | None = None) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._seconds = seconds

    async def run(self, database: Database, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on one snapshot of the database."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, database, work)

    def close(self) -> None:
        """Finish the work that was handed in, and disconnect."""
        self._pool.shutdown()
        for db in self._connections:
            db.close()

    def _read(self, database: Database, work: Callable[[sqlite3.Connection], T]) -> T:
        db = getattr(self._local, "db", None)
        if db is None:
            with translated():
                db = self._local.db = database.reader()
            self._connections.append(db)
        return snapshot(db, work) if self._seconds is None else _within(self._seconds, db, work)


def _within(seconds: float, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Read, but no longer than some seconds."""
    deadline = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        return snapshot(db, work)
    except Unavailable as exc:
        cause = exc.__cause__
        if isinstance(cause, sqlite3.Error) and error_code(cause) == sqlite3.SQLITE_INTERRUPT:
            raise too_slow(seconds) from cause
        raise
    finally:
        db.set_progress_handler(None, 0)


def file_system_of(folder: Path, mounts: Callable[[], str] | None = None) -> str | None:
    """The type of the file system of a folder; None where it is unknown."""
    try:
        lines = (mounts or _mounts)().splitlines()
    except OSError:
        return None  # no /proc: not Linux
    path = folder.resolve()
    best: tuple[int, str] | None = None
    for line in lines:
        _, mount, kind, *_ = line.split(" ")
        point = Path(mount.encode().decode("unicode_escape"))
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), kind)  # the last mount on a point hides earlier ones
    return None if best is None else best[1]


def _mounts() -> str:
    return Path("/proc/mounts").read_text("utf-8", "surrogateescape")


def _folded(text: str | None) -> str | None:
    return None if text is None else text.casefold()
