"""The latest runs of jobs that are due, by the index of runs by job."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from horae.core.model import JobId, Run
from horae.stores.common.listing import EARLIEST
from horae.stores.dynamodb.items import run_of
from horae.stores.dynamodb.reading.rows import RowReader, from_time, through_time

AT_ONCE = 16  # jobs that are looked up at the same time
SPARE = 2  # entries that are read, for the row of the first may be gone


class LastRuns:
    """Finds the last runs of jobs."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    async def of_jobs(self, job_ids: Sequence[JobId], now: datetime) -> dict[JobId, Run]:
        """Return the last runs of jobs of both kinds; a one-shot may have later ones, by hand."""
        shots = await self._rows.runs(job_ids)
        found = await self.of_recurring(job_ids, now)
        for job_id in job_ids:
            item = shots.get(job_id)
            if item is None or "sch" not in item or (run := run_of(item)).due_at > now:
                continue
            if job_id not in found or (found[job_id].due_at, found[job_id].id) < (run.due_at, run.id):
                found[job_id] = run
        return found

    async def of_recurring(self, job_ids: Sequence[JobId], now: datetime) -> dict[JobId, Run]:
        """Return the last runs that are not the one-shots themselves."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def places(job_id: JobId) -> list[str]:
            ranges = self._rows.by_due("by_job", [job_id], from_time(EARLIEST), through_time(now))
            async with gate:
                entries = [entry for each in ranges for entry in await self._rows.db.items(each, limit=SPARE)]
            return [entry["id"]["S"] for entry in entries]

        latest = await asyncio.gather(*map(places, job_ids))
        rows = await self._rows.runs(run_id for run_ids in latest for run_id in run_ids)
        found: dict[JobId, Run] = {}
        for job_id, run_ids in zip(job_ids, latest, strict=True):
            if (there := next((run_id for run_id in run_ids if run_id in rows), None)) is not None:
                found[job_id] = run_of(rows[there])
        return found
