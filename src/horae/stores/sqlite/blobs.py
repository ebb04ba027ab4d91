"""Blobs in the SQLite store itself: the default place of logs and large payloads."""

from collections.abc import Callable, Sequence
from datetime import datetime

from horae.stores.sqlite.codecs import to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import SqliteExecutor

_AFTER_ALL_KEYS = "\x7f"  # keys consist of [a-z0-9_.-/], which sort before it


class SqliteBlobs:
    """Blobs as rows of a table."""

    def __init__(self, executor: SqliteExecutor, wall: Callable[[], datetime]) -> None:
        self._executor = executor
        self._wall = wall

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        put, now = STATEMENTS["put_blobs"], to_micros(self._wall())
        rows = [(key, data, now) for key, data in items]
        if rows:
            await self._executor.write(lambda transaction: transaction.db.executemany(put, rows).rowcount)

    async def get(self, key: str) -> bytes | None:
        row = await self._executor.read(lambda db: db.execute(STATEMENTS["get_blob"], (key,)).fetchone())
        return None if row is None else bytes(row[0])

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        which = {"from": prefix, "to": prefix + _AFTER_ALL_KEYS, "after": after, "limit": limit}
        return await self._executor.read(lambda db: db.execute(STATEMENTS["blobs_under"], which).fetchall())

    async def delete(self, prefix: str) -> None:
        delete, which = STATEMENTS["delete_blobs"], {"from": prefix, "to": prefix + _AFTER_ALL_KEYS}
        await self._executor.write(lambda transaction: transaction.db.execute(delete, which).rowcount)
