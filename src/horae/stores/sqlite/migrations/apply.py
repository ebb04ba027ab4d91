"""The schema of a SQLite file: its version, and its migrations, which nodes that serve wait for but survive."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from horae.ports.database import SchemaStatus, Tell, tell_nobody
from horae.stores.common.migrations import Migration, Way
from horae.stores.common.schema import pending, refuse_unfit, status_of
from horae.stores.sqlite.codecs import to_micros
from horae.stores.sqlite.database import STATEMENTS, error_code, execute_when_free, roll_back

LOCK_SECONDS = 2.0  # after which it is told that we still wait for the write lock
PATIENCE = 300.0  # seconds to wait for it in all
TELL_EVERY = 2.0  # seconds between two lines about batches


def read_status(db: sqlite3.Connection) -> SchemaStatus:
    """Read the versions of the schema."""
    oldest = _highest(db, "oldest_version") if _there(db, "has_versions") else 0
    applied = _highest(db, "schema_version") if _there(db, "has_migrations") else 0
    return status_of("sqlite", applied=applied, oldest=oldest)


def create_or_check(db: sqlite3.Connection) -> None:
    """Create the schema in an empty file; raise Misconfigured for a file whose schema is not for this code."""
    if not _there(db, "has_tables"):
        migrate(db)
    else:
        refuse_unfit(read_status(db))


def migrate(db: sqlite3.Connection, tell: Tell = tell_nobody) -> list[int]:
    """Bring a file to the expected version; returns the numbers of the migrations that were applied.

    A new file gets all of them in one transaction, so that nobody sees a part. Otherwise each has its own, so that
    nodes that serve never wait for more than one.
    """
    steps = pending("sqlite", read_status(db))
    if read_status(db).version == 0:
        return _apply_together(db, steps, tell)
    return [step.number for step in steps if _apply(db, step, tell)]


def _apply_together(db: sqlite3.Connection, steps: Sequence[Migration], tell: Tell) -> list[int]:
    with _transaction(db, tell):
        needed = [step for step in steps if step.number > read_status(db).version]  # another process may have migrated
        for step in needed:
            _execute(db, step)
            _note(db, step)
    return [step.number for step in needed]


def _apply(db: sqlite3.Connection, step: Migration, tell: Tell) -> bool:
    if step.way is Way.BATCHES:
        return _apply_in_batches(db, step, tell)
    return bool(_apply_together(db, [step], tell))


def _apply_in_batches(db: sqlite3.Connection, step: Migration, tell: Tell) -> bool:
    """Repeat a statement until it changes nothing; in the pauses between, others have the write lock."""
    if read_status(db).version >= step.number:
        return False
    changed, told_at = 0, time.monotonic()
    while True:
        began_at = time.monotonic()
        with _transaction(db, tell):
            rows = _execute(db, step)
            if rows == 0:
                _note(db, step)
                return True
        changed += rows
        if time.monotonic() - told_at > TELL_EVERY:
            told_at = time.monotonic()
            tell(f"migration {step.number}: {changed:,} rows so far")
        time.sleep(time.monotonic() - began_at)


def _execute(db: sqlite3.Connection, step: Migration) -> int:
    """Execute the statements of a migration; returns how many rows they changed."""
    statements = step.script.split(";\n")  # `executescript` would commit the transaction first
    return sum(max(db.execute(statement).rowcount, 0) for statement in statements)


def _note(db: sqlite3.Connection, step: Migration) -> None:
    now = to_micros(datetime.now(UTC))
    for table in ("create_versions", "create_migrations"):
        db.execute(STATEMENTS[table])
    db.execute(STATEMENTS["add_migration"], (step.number, now))
    if step.since is not None:
        db.execute(STATEMENTS["add_version"], (step.since, now))


@contextmanager
def _transaction(db: sqlite3.Connection, tell: Tell) -> Iterator[None]:
    """Write in one transaction, once nobody else has the write lock."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            execute_when_free(db, "BEGIN IMMEDIATE", LOCK_SECONDS)
            break
        except sqlite3.OperationalError as exc:
            if error_code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            tell("waiting for another process that writes to the database")
    try:
        yield
        db.execute("COMMIT")
    finally:
        roll_back(db)


def _there(db: sqlite3.Connection, statement: str) -> bool:
    return db.execute(STATEMENTS[statement]).fetchone() is not None


def _highest(db: sqlite3.Connection, statement: str) -> int:
    [number] = db.execute(STATEMENTS[statement]).fetchone()
    return int(number)
