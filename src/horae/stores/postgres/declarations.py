"""Declared schedules in PostgreSQL: every version that some code has shown."""

from collections.abc import Sequence

from horae.core.records import Declaration
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import columns
from horae.stores.postgres.database import retried


class PostgresDeclarations(PostgresBase):
    """The verbs of the store that deal with declared schedules."""

    async def declarations(self, owner: str) -> list[Declaration]:
        """Every version of every declared schedule of an owner that was not forgotten."""
        found = await self._db.rows("declarations", owner)
        return [Declaration(app=row[0], key=row[1], digest=row[2], seen_at=row[3]) for row in found]

    @retried
    async def declare(self, owner: str, declarations: Sequence[Declaration], *, renew: bool = False) -> None:
        """Note versions of schedules that were not seen before; with `renew` seen ones count as seen now."""
        each = {(item.app, item.key, item.digest): item for item in declarations}
        if each:
            await self._db.rows("declare", owner, *columns(rows.declaration, each.values()), renew)

    @retried
    async def forget(self, owner: str, *, app: str, keys: Sequence[str]) -> None:
        """Forget every version of some declared schedules."""
        await self._db.rows("forget", owner, app, keys)
