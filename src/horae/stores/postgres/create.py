"""Creating plain one-shots in PostgreSQL: in one statement, with their events."""

from collections.abc import Sequence

import asyncpg

from horae.core.effects import due_signals
from horae.core.model import Run
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import Places, new_runs
from horae.stores.postgres.connection.database import Collision, retried


class PostgresCreate(PostgresBase):
    """The verb of the store that creates one-shots."""

    @retried
    async def create(self, runs: Sequence[Run]) -> None:
        """Write one-shots that have no key; those that are there already, because they are sent again, stay."""
        if not runs:
            return
        places = await self._places_of(runs)
        try:
            await self._create(runs, places, again=False)
        except Collision:
            await self._create(runs, places, again=True)
        self._signals.send(due_signals(runs))

    async def _create(self, runs: Sequence[Run], places: Places, *, again: bool) -> None:
        """Write new runs; `again` when some of them may be there already, or come twice."""
        once = {run.id: run for run in runs}.values() if again else runs
        try:
            await self._db.rows("create_runs", new_runs(once, places), again)
        except asyncpg.UniqueViolationError as exc:
            raise Collision("runs with these ids are there already, or are being written; try again") from exc
