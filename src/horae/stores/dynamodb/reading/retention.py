"""Deletes what is old: ended runs with their attempts, skips, cancelled jobs and blobs; oldest first, in bounded steps.

TTL deletes most runs before, and for nothing. What it deletes is passed over here.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from horae.core.decisions.release import blocks_key
from horae.core.lifecycle import FINAL
from horae.core.records import ScheduleTrail
from horae.stores.common.records import KINDS
from horae.stores.dynamodb.database import Database, Delete, Range
from horae.stores.dynamodb.gates import member_key
from horae.stores.dynamodb.items import Item, run_of, stamp, state_of, time_of
from horae.stores.dynamodb.journals import ENDED_PARTS, MOST_ENDED, ended_partition
from horae.stores.dynamodb.reading.blobs import DynamoBlobs
from horae.stores.dynamodb.reading.rows import Rows
from horae.stores.dynamodb.small_items import record_key

AGAIN = timedelta(days=7)  # until a blob that is still needed is looked at again
AT_ONCE = 16
_FIRST = "!"  # sorts before every key


class Pruning:
    """Deletes old rows."""

    def __init__(self, rows: Rows, blobs: DynamoBlobs) -> None:
        self._rows = rows
        self._blobs = blobs

    @property
    def _db(self) -> Database:
        return self._rows.db

    async def prune(self, before: date, limit: int) -> int:
        """Delete what is older than a day; see `Store.prune`."""
        moment = datetime.combine(before, time(), UTC)
        return (
            await self._runs(moment, limit)
            + await self._skips(moment, limit)
            + await self._jobs(moment, limit)
            + await self._old_blobs(moment, limit)
        )

    # --- runs

    async def _runs(self, before: datetime, limit: int) -> int:
        entries: list[Item] = []
        most = max(limit // MOST_ENDED, 1)
        for part in range(ENDED_PARTS):
            which = Range(
                table=self._db.names.meta,
                pk=("pk", ended_partition(part)),
                sk="sk",
                low=_FIRST,
                high=stamp(before),
            )
            entries += await self._db.items(which, limit=most - len(entries))
            if len(entries) >= most:
                break
        if not entries:
            return 0
        rows = await self._rows.ended(entries)
        old = [item for item in rows if "N" in item.get("fi", {}) and time_of(item["fi"]) < before]
        await self._delete_runs([item for item in old if state_of(item) in FINAL])
        await self._db.write([Delete(self._db.names.meta, _key_of(entry)) for entry in entries])
        return len(old) + len(entries)

    async def _delete_runs(self, items: Sequence[Item]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def attempts(item: Item) -> list[Delete]:
            which = Range(table=self._db.names.meta, pk=("pk", f"tries#{item['id']['S']}"), attributes=("pk", "sk"))
            async with gate:
                return [Delete(self._db.names.meta, each) for each in await self._db.items(which)]

        runs = [run_of(item) for item in items]
        beside = await asyncio.gather(*(attempts(item) for item in items if _may_have_attempts(item)))
        letters = [Delete(self._db.names.meta, member_key(run)) for run in runs if run.gate and blocks_key(run)]
        await self._db.write([*(each for some in beside for each in some), *letters])
        await self._db.write([Delete(self._db.names.runs, {"id": item["id"]}) for item in items])

    # --- beside jobs

    async def _skips(self, before: datetime, limit: int) -> int:
        found = await self._db.items(self._old("skip", before), limit=limit)
        await self._db.write(
            [Delete(self._db.names.jobs, {name: each[name] for name in ("job", "sk")}) for each in found]
        )
        return len(found)

    async def _jobs(self, before: datetime, limit: int) -> int:
        """Delete cancelled jobs of which no run is left, with everything beside them."""
        gone = 0
        async for page in self._db.pages(self._old("job", before), limit=limit):
            for entry in page.items:
                gone += await self._delete_job(entry["job"]["S"])
            if gone >= limit:
                break
        return gone

    async def _delete_job(self, job_id: str) -> bool:
        runs = Range(table=self._db.names.runs, index="by_job", pk=("job", job_id), consistent=False)
        if await self._db.items(runs, limit=1):
            return False
        job = (await self._rows.jobs([job_id])).get(job_id)
        if job is None:
            return False
        beside = Range(table=self._db.names.jobs, pk=("job", job_id), attributes=("job", "sk"))
        trail = record_key(KINDS[ScheduleTrail], job["o"]["S"], job_id)
        await self._db.write([Delete(self._db.names.meta, trail)])
        await self._db.write([Delete(self._db.names.jobs, item) for item in await self._db.items(beside)])
        return True

    def _old(self, kind: str, before: datetime) -> Range:
        return Range(
            table=self._db.names.jobs,
            index="old",
            pk=("old", kind),
            sk="old_at",
            low=_FIRST,
            high=stamp(before),
            consistent=False,
        )

    # --- blobs

    async def _old_blobs(self, before: datetime, limit: int) -> int:
        entries = await self._blobs.old_groups(before, limit)
        for entry in entries:
            group = entry["g"]["S"]
            if await self._is_needed(group):
                await self._blobs.move_entry(entry, before + AGAIN)
            else:
                others = await self._blobs.delete_old(group, before)
                await self._blobs.move_entry(entry, before + AGAIN if others else None)
        return len(entries)

    async def _is_needed(self, key: str) -> bool:
        """Whether a job or run refers to the parameters under a key."""
        for table in (self._db.names.runs, self._db.names.jobs):
            which = Range(table=table, index="by_params", pk=("pb", key), consistent=False)
            if await self._db.items(which, limit=1):
                return True
        return False


def _key_of(item: Item) -> Item:
    return {name: item[name] for name in ("pk", "sk")}


def _may_have_attempts(item: Item) -> bool:
    """Whether a run may have had an attempt that did not succeed; most have been claimed once."""
    return item["s"]["S"] != "succeeded" or int(item["f"]["N"]) > 1
