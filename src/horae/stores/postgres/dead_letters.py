"""Dead letters in PostgreSQL: what becomes of them, and by what they failed."""

from collections.abc import Sequence
from typing import Any

from horae.core.model import RunId
from horae.core.values import replace
from horae.ports.reader import ErrorGroup, RunFilter
from horae.stores.common.codecs import decode_error
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.list_queries import RunQuery

MAX_LETTERS = 10_000  # that are counted, or looked at for groups


class PostgresLetters(PostgresBase):
    """The verbs of the store that deal with dead letters."""

    async def dead_letters(self) -> int:
        """How many failed runs nobody has resolved, counted up to a bound."""
        count: int = await self._db.value("count_dead_letters", MAX_LETTERS)
        return count

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        """Dead letters by task and error, the most frequent first; of at most 10,000 letters, the latest."""
        query = RunQuery.of(replace(which, dead_letters=True), None, MAX_LETTERS - 1)
        groups = query.groups()
        found = await self._db.rows(groups.name, *query.arguments(groups))
        return [group for row in found if (group := _group(row)) is not None]


def _group(row: Sequence[Any]) -> ErrorGroup | None:
    error = decode_error(row[1])
    if error is None:
        return None
    return ErrorGroup(error=error, count=row[2], oldest_at=row[3], newest_at=row[4], task=row[0], example=RunId(row[5]))
