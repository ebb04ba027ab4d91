"""Creating one-shots in PostgreSQL: in one statement with their events, or in a transaction of the user."""

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import msgspec

from horae.core.effects import due_signals
from horae.core.model import Run
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import NEW_RUN_COLUMNS, Places, lane_wakes, new_run, new_runs
from horae.stores.postgres.connection.database import Collision, retried


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlistment:
    """A statement for the connection of the user: the call of a function with one text.

    It fails with a unique violation (SQLSTATE 23505) on the table `keys` when another unfinished job has a key of the
    runs; the detail of the error is that job's id.
    """

    function: str  # quoted, with its schema, so that the search_path of the connection does not matter
    argument: str

    def sql(self, placeholder: str) -> str:
        """The statement for a driver with this style of parameters: `$1`, `%s`, ..."""
        function = self.function.replace("%", "%%") if placeholder.startswith("%") else self.function
        return f"SELECT {function}({placeholder})"


class PostgresCreate(PostgresBase):
    """The verbs of the store that create one-shots."""

    @retried
    async def create(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        places = await self._places_of(runs)
        try:
            await self._create(runs, places, again=False)
        except Collision:
            await self._create(runs, places, again=True)
        self._signals.send(due_signals(runs))

    async def _create(self, runs: Sequence[Run], places: Places, *, again: bool) -> None:
        """Write new runs; `again` when some of them may exist already, or come twice."""
        batches = new_runs({run.id: run for run in runs}.values() if again else runs, places)
        try:
            await self._db.rows("create_runs", batches, again, *lane_wakes(batches))
        except asyncpg.UniqueViolationError as exc:
            raise Collision("runs with these ids are there already, or are being written; try again") from exc

    async def enlistment(self, runs: Sequence[Run]) -> Enlistment:
        """How to submit one-shot runs in a transaction of the caller.

        Lanes and shelves are written here, in our own transaction, because one of the user may take long.
        """
        places = await self._places_of(runs)
        given = [dict(zip(NEW_RUN_COLUMNS, new_run(run, places), strict=True)) for run in runs]
        return Enlistment(
            function=await self._db.value("submit_runs_function"), argument=msgspec.json.encode(given).decode()
        )
