"""The ledger of a job: what became of its slots."""

import heapq
from collections.abc import Sequence
from datetime import datetime

from horae.core.model import Backfill, JobId, Run, Skip, Trigger
from horae.ports.reader import Ledger
from horae.stores.dynamodb.database import Range
from horae.stores.dynamodb.items import Item, run_of, stamp
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader, from_time, through_time
from horae.stores.dynamodb.small_items import backfill_of, skip_of

ROWS_AT_ONCE = 100  # as many as one BatchGetItem takes


class Ledgers:
    """Reads ledgers."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    async def of(self, job_id: JobId, *, start: datetime, end: datetime, limit: int, look: int | None) -> Ledger:
        """Return the ledger of a range of slots; see `Reader.ledger`."""
        if end < start:
            return Ledger(runs=[], skips=[], backfills=[])
        punctual = await self._runs("by_job", job_id, start, end, limit)
        jittered = await self._runs("by_slot", job_id, start, end, limit)
        runs = heapq.merge(punctual, jittered, key=lambda run: (str(run.slot), run.id))
        return Ledger(
            runs=list(runs)[:limit],
            skips=await self._skips(job_id, start, end, look),
            backfills=await self._backfills(job_id, start, end),
        )

    async def _runs(self, index: str, job_id: JobId, start: datetime, end: datetime, limit: int) -> list[Run]:
        """Return the first runs of slots in a range, by an index of due times or of slots that differ from those."""
        ranges = self._rows.by_due(index, [job_id], from_time(start), through_time(end), forward=True)
        found: list[Run] = []
        idents: list[str] = []
        async for entry in merged(self._rows.db, ranges, expect=limit):
            idents.append(entry["id"]["S"])
            if len(idents) >= ROWS_AT_ONCE:
                found += await self._fitting(idents, index)
                idents = []
            if len(found) >= limit:
                break
        found += await self._fitting(idents, index)
        return sorted(found, key=lambda run: (str(run.slot), run.id))[:limit]

    async def _fitting(self, idents: Sequence[str], index: str) -> list[Run]:
        runs = map(run_of, (await self._rows.runs(idents)).values())
        return [
            run
            for run in runs
            if run.trigger is Trigger.SCHEDULE
            and run.slot is not None
            and (run.slot == run.due_at) is (index == "by_job")
        ]

    async def _skips(self, job_id: JobId, start: datetime, end: datetime, look: int | None) -> list[Skip]:
        """Return those that begin within the range, and of those that began before it what reaches into it."""
        earlier = self._beside(job_id, "skip#", f"skip#{stamp(start)}", forward=False)
        within = self._beside(job_id, f"skip#{stamp(start)}", f"skip#{stamp(end)}~")
        before = [skip for skip in map(skip_of, await self._rows.db.items(earlier, limit=look)) if skip.end >= start]
        found = [*before, *map(skip_of, await self._rows.db.items(within, limit=look))]
        return sorted(found, key=lambda skip: skip.start)

    async def _backfills(self, job_id: JobId, start: datetime, end: datetime) -> list[Backfill]:
        items: list[Item] = await self._rows.db.items(self._beside(job_id, "fill#", "fill#~"))
        found = [each for each in map(backfill_of, items) if each.start <= end and each.end >= start]
        return sorted(found, key=lambda backfill: backfill.start)

    def _beside(self, job_id: JobId, low: str, high: str, *, forward: bool = True) -> Range:
        return Range(table=self._rows.db.names.jobs, pk=("job", job_id), sk="sk", low=low, high=high, forward=forward)
