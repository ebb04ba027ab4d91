"""Blobs in PostgreSQL, beside the runs that they belong to."""

from collections.abc import Sequence

from horae.stores.postgres.connection.database import Database, retried


class PostgresBlobs:
    """Small files by key, in a table."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @retried
    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        if items:
            latest = dict(items)  # of two with one key the later counts
            await self._db.rows("put_blobs", list(latest), list(latest.values()))

    async def get(self, key: str) -> bytes | None:
        data: bytes | None = await self._db.value("get_blob", key)
        return data

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        return [(row[0], row[1]) for row in await self._db.rows("blobs_under", prefix, after, limit)]

    @retried
    async def delete(self, prefix: str) -> None:
        await self._db.rows("delete_blobs", prefix)
