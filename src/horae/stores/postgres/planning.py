"""What planners look at in PostgreSQL: jobs and backfills whose time to be planned has come."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.decisions.firing import MAX_UNSTARTED, Due
from horae.ports.store import Plannable
from horae.stores.common.codecs import JOB_COLUMNS
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import ROWS

_COUNTS = len(JOB_COLUMNS)  # where the counts of a job's runs follow its columns
_PAGE = _COUNTS + 2  # where the columns of a backfill follow these


class PostgresPlanning(PostgresBase):
    """The verb of the store that planners read with."""

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""
        async with self._db.session() as session:
            jobs = await session.rows("plannable_jobs", shards, now, limit, MAX_UNSTARTED)
            pages = await session.rows("plannable_backfills", shards, now, limit, MAX_UNSTARTED)
            next_at = await session.value("next_plan_at", shards, now)
        return Plannable(
            jobs=[_due(row) for row in jobs],
            backfills=[(ROWS.backfill(row[_PAGE:]), _due(row)) for row in pages],
            next_at=next_at,
        )


def _due(row: Sequence[Any]) -> Due:
    """A job with how many of its runs are alive, from JOB_COLUMNS and two counts."""
    return Due(job=ROWS.job(row), unstarted=row[_COUNTS], live=row[_COUNTS + 1])
