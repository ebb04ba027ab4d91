"""Blobs kept in the SQLite store itself: the default place for logs and large payloads."""

from collections.abc import Callable, Sequence
from datetime import datetime

from horae.stores.sqlite.codecs import to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import SqliteExecutor, Transaction

_AFTER_ALL_KEYS = "\x7f"  # keys are of [a-z0-9_.-/], all of them below


class SqliteBlobs:
    """Blobs as rows of a table."""

    def __init__(self, executor: SqliteExecutor, wall: Callable[[], datetime]) -> None:
        self._executor = executor
        self._wall = wall

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        now = to_micros(self._wall())

        def work(transaction: Transaction) -> None:
            transaction.db.executemany(STATEMENTS["put_blob"], [(key, data, now) for key, data in items])

        if items:
            await self._executor.write(work)

    async def get(self, key: str) -> bytes | None:
        row = await self._executor.read(lambda db: db.execute(STATEMENTS["get_blob"], (key,)).fetchone())
        return None if row is None else bytes(row[0])

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        which = {"from": prefix, "to": prefix + _AFTER_ALL_KEYS, "after": after, "limit": limit}
        return await self._executor.read(lambda db: db.execute(STATEMENTS["blobs_under"], which).fetchall())

    async def delete(self, prefix: str) -> None:
        which = {"from": prefix, "to": prefix + _AFTER_ALL_KEYS}

        def work(transaction: Transaction) -> None:
            transaction.db.execute(STATEMENTS["delete_blobs"], which)

        await self._executor.write(work)
