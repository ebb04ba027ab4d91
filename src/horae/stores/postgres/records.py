"""Small records in PostgreSQL: idempotency receipts and declared schedules, by their keys."""

from datetime import datetime

from horae.core.records import RECEIPT_LIFE, Declaration, Receipt
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import receipt_of


class PostgresRecords(PostgresBase):
    """The verbs of the store that read small records."""

    async def receipt(self, owner: str, key: str, *, now: datetime) -> Receipt | None:
        """The receipt of an earlier request under this key, while it is valid."""
        for row in await self._db.rows("valid_receipt", owner, key, now, RECEIPT_LIFE):
            return receipt_of(row)
        return None

    async def declarations(self, owner: str) -> list[Declaration]:
        """Every version of every declared schedule of an owner that was not forgotten."""
        found = await self._db.rows("declarations", owner)
        return [Declaration(owner=owner, app=row[0], key=row[1], digest=row[2], seen_at=row[3]) for row in found]
