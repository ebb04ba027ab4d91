"""Runs that are submitted in a transaction of the user: they exist when that commits, and only then."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from horae.core.model import Run
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import NEW_RUN_COLUMNS, new_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlistment:
    """A statement for the connection of the user; it is a call with one argument, a text.

    It fails with a unique violation (SQLSTATE 23505, constraint `keys_pkey`) when another unfinished job has a key of
    the runs; the detail of the error is that job's id.
    """

    function: str  # quoted, with its schema, so that the search_path of the connection does not matter
    argument: str

    def sql(self, placeholder: str) -> str:
        """The statement for a driver that marks parameters so: `$1`, `%s`, ..."""
        function = self.function.replace("%", "%%") if placeholder.startswith("%") else self.function
        return f"SELECT {function}({placeholder})"


class PostgresEnlistment(PostgresBase):
    """The part of the store that works on connections of others."""

    async def enlistment(self, runs: Sequence[Run]) -> Enlistment:
        """How to submit one-shot runs in a transaction of the caller.

        Lanes and shelves are made here, in a transaction of our own, for those of a user may be long.
        """
        places = await self._places_of(runs)
        given = [dict(zip(NEW_RUN_COLUMNS, new_run(run, places), strict=True)) for run in runs]
        return Enlistment(
            function=await self._db.value("submit_runs_function"), argument=msgspec.json.encode(given).decode()
        )
