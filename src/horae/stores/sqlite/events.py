"""The event outbox in SQLite: written with each commit, read in the order of the commits."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from horae.core.events import EventKind
from horae.ports.events import EventBatch
from horae.stores.common.listing import event_position, last_position_before
from horae.stores.sqlite.codecs import to_blob, to_hex, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import SqliteExecutor, Transaction

_ID_BYTES = 16


def write(db: sqlite3.Connection, transactions: Sequence[Transaction], now: datetime) -> None:
    """Write the events of the transactions in one commit: one row for each owner and kind."""
    merged: dict[tuple[str, EventKind], list[str]] = {}
    for transaction in transactions:
        for place, subjects in transaction.events.items():
            merged.setdefault(place, []).extend(subjects)
    if merged:
        at = to_micros(now)
        rows = [(kind.value, owner, at, to_blob("".join(subjects))) for (owner, kind), subjects in merged.items()]
        db.executemany(STATEMENTS["add_events"], rows)


class SqliteEventLog:
    """Reads the outbox."""

    def __init__(self, executor: SqliteExecutor) -> None:
        self._executor = executor

    async def read(self, *, after: str | None, owner: str | None, limit: int) -> list[EventBatch]:
        since = 0 if after is None else event_position(after)
        return await self._executor.read(lambda db: _read(db, since, owner, limit))

    async def last(self, *, before: datetime | None = None) -> str:
        last = await self._executor.read(_last)
        if before is None:
            return str(last)

        async def first_after(position: int) -> datetime | None:
            found = await self._executor.read(lambda db: _read(db, position, None, 1))
            return found[0].at if found else None

        return str(await last_position_before(before, last, first_after))


def _read(db: sqlite3.Connection, since: int, owner: str | None, limit: int) -> list[EventBatch]:
    if since > _last(db):
        since = 0  # the position is from before the database was restored
    which = {"after": since, "owner": owner, "limit": limit}
    rows = db.execute(STATEMENTS["events_of_all" if owner is None else "events_of_owner"], which)
    return [_batch(*row) for row in rows]


def _last(db: sqlite3.Connection) -> int:
    """The last position that was used."""
    return int(db.execute(STATEMENTS["last_event"]).fetchone()[0])


def _batch(position: int, kind: str, owner: str, at: int, subjects: bytes) -> EventBatch:
    return EventBatch(
        position=str(position),
        kind=EventKind(kind),
        owner=owner,
        at=to_time(at),
        subjects=[to_hex(subjects[start : start + _ID_BYTES]) for start in range(0, len(subjects), _ID_BYTES)],
    )
