"""The outbox of events in SQLite: written with each commit, read in the order of the commits."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from horae.core.errors import Invalid
from horae.core.events import EventKind
from horae.ports.events import EventBatch
from horae.stores.sqlite.codecs import LAST, to_blob, to_hex, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import SqliteExecutor, Transaction

_ID_BYTES = 16


def write(db: sqlite3.Connection, transactions: Sequence[Transaction], now: datetime) -> None:
    """Write what transactions of one commit have to tell: one row for each owner and kind, however many they are."""
    told: dict[tuple[str, EventKind], list[str]] = {}
    for transaction in transactions:
        for whose, subjects in transaction.events.items():
            told.setdefault(whose, []).extend(subjects)
    if told:
        at = to_micros(now)
        rows = [(kind.value, owner, at, to_blob("".join(subjects))) for (owner, kind), subjects in told.items()]
        db.executemany(STATEMENTS["write_event"], rows)


class SqliteEventLog:
    """Reads the outbox."""

    def __init__(self, executor: SqliteExecutor) -> None:
        self._executor = executor

    async def read(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        since = 0 if after is None else _position(after)
        return await self._executor.read(lambda db: _read(db, since, owner, limit))

    async def last(self) -> str:
        return str(await self._executor.read(_last))


def _read(db: sqlite3.Connection, since: int, owner: str | None, limit: int) -> list[EventBatch]:
    if since > _last(db):
        since = 0  # given out before the database was set back
    which = {"after": since, "owner": owner, "limit": limit}
    rows = db.execute(STATEMENTS["events_of_anyone" if owner is None else "events_of_owner"], which)
    return [_batch(*row) for row in rows]


def _last(db: sqlite3.Connection) -> int:
    """The last position that was given."""
    return int(db.execute(STATEMENTS["last_event"]).fetchone()[0])


def _position(text: str) -> int:
    """A position that a listener came back with, which may be anybody's invention."""
    position = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(LAST)) else None
    if position is None or position > LAST:
        raise Invalid("the position is not one that this server gave out; begin without it")
    return position


def _batch(position: int, kind: str, owner: str, at: int, subjects: bytes) -> EventBatch:
    return EventBatch(
        position=str(position),
        kind=EventKind(kind),
        owner=owner,
        at=to_time(at),
        subjects=[to_hex(subjects[start : start + _ID_BYTES]) for start in range(0, len(subjects), _ID_BYTES)],
    )
