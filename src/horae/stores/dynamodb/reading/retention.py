"""Deletes what is old: ended runs with their attempts, skips, cancelled jobs and blobs; oldest first, in bounded steps.

TTL deletes most runs before, and for nothing. What it deletes is passed over here.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

from horae.core.decisions.release import blocks_key
from horae.core.lifecycle import FINAL
from horae.core.model import Run
from horae.core.records import ScheduleTrail
from horae.ports.store import EndedRuns
from horae.stores.common.listing import EARLIEST
from horae.stores.common.records import KINDS
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database, DeleteItem, Range, cut
from horae.stores.dynamodb.gates import member_key
from horae.stores.dynamodb.items import Item, run_of, stamp, state_of, time_of, time_of_stamp, unpacked
from horae.stores.dynamodb.journals import (
    ENDED_PARTS,
    MOST_ENDED,
    RESTORED,
    ended_of,
    ended_partition,
    made_partition,
    second_of,
)
from horae.stores.dynamodb.reading.blobs import DynamoBlobs
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader
from horae.stores.dynamodb.small_items import record_key

AGAIN = timedelta(days=7)  # until a blob that is still needed is looked at again
AT_ONCE = 16
ROWS_AT_ONCE = 100  # as many as one BatchGetItem takes
BELIEVED = 60.0  # seconds that a count of what is archived holds; nothing ends days ago
_FIRST = "!"  # sorts before every key


class Pruning:
    """Deletes old rows."""

    def __init__(self, rows: RowReader, blobs: DynamoBlobs) -> None:
        self._rows = rows
        self._blobs = blobs
        self._checked: tuple[datetime, int] | None = None  # history that was found to be archived
        self._checked_at = 0.0
        self._made_to = "", ""  # the sub-shard and the entry up to which the journal was looked through

    @property
    def _db(self) -> Database:
        return self._rows.db

    async def prune(self, before: date, limit: int, archived: int | None) -> int:
        """Delete what is older than a day; see `Store.prune`."""
        moment = datetime.combine(before, time(), UTC)
        gone = 0
        if archived is None or await self._is_archived(moment, archived):
            gone += await self._runs(moment, limit)
        return (
            gone
            + await self._restored(moment, limit)
            + await self._made(moment, limit)
            + await self._skips(moment, limit)
            + await self._jobs(moment, limit)
            + await self._old_blobs(moment, limit)
        )

    # --- the archive

    async def ended(self, before: date, after: Run | None, limit: int) -> EndedRuns | None:
        """Return runs that ended on a day, by the time of their end and their id; see `Store.ended`."""
        start, ident = EARLIEST, ""
        if after is not None and after.finished_at is not None:
            start, ident = after.finished_at.astimezone(UTC), after.id
        end = datetime.combine(before if after is None else start.date() + timedelta(days=1), time(), UTC)
        day = None if after is None else start.date()
        found: list[Run] = []
        async for entries in self._seconds(start, end):
            places = sorted({(run.finished_at, run.run_id) for entry in entries for run in ended_of(entry)})
            for some in cut([place for place in places if place > (start, ident)], ROWS_AT_ONCE):
                rows = await self._rows.runs(run_id for _, run_id in some)
                for finished_at, run_id in some:
                    item = rows.get(run_id)
                    if item is None or "rst" in item or (run := run_of(item)).finished_at != finished_at:
                        continue
                    day = day or finished_at.date()
                    if finished_at.date() > day:
                        return EndedRuns(day=day, runs=found)
                    found.append(run)
                    if len(found) == limit:
                        return EndedRuns(day=day, runs=found)
        return None if day is None else EndedRuns(day=day, runs=found)

    async def _seconds(self, start: datetime, end: datetime) -> AsyncIterator[list[Item]]:
        """Yield the entries of the journal from one time to before another, second by second."""
        entries: list[Item] = []
        low, high = stamp(second_of(start)), stamp(end)
        async for entry in merged(self._db, self._ended(low, high), expect=ROWS_AT_ONCE):
            if entries and _second(entry) != _second(entries[0]):
                yield entries
                entries = []
            entries.append(entry)
        if entries:
            yield entries

    def _ended(self, low: str, high: str) -> list[Range]:
        return [
            Range(
                table=self._db.names.meta,
                pk=("pk", ended_partition(part)),
                sk="sk",
                low=low,
                high=high,
            )
            for part in range(ENDED_PARTS)
        ]

    async def _is_archived(self, before: datetime, archived: int) -> bool:
        """Whether there is no more history of days before than that; what was found is believed for a while."""
        if self._checked == (before, archived) and times.steady() - self._checked_at < BELIEVED:
            return True
        count = 0
        async for entries in self._seconds(EARLIEST, before):
            rows = await self._rows.ended(entries)
            count += sum("rst" not in item and _ended_before(item, before) for item in rows)
            if count > archived:
                return False
        self._checked, self._checked_at = (before, archived), times.steady()
        return True

    # --- runs

    async def _runs(self, before: datetime, limit: int) -> int:
        entries: list[Item] = []
        most = max(limit // MOST_ENDED, 1)
        for which in self._ended(_FIRST, stamp(before)):
            entries += await self._db.items(which, limit=most - len(entries))
            if len(entries) >= most:
                break
        if not entries:
            return 0
        rows = await self._rows.ended(entries)
        old = [item for item in rows if "rst" not in item and _ended_before(item, before)]
        await self._delete_runs(old)
        await self._db.write([DeleteItem(self._db.names.meta, _key_of(entry)) for entry in entries])
        return len(old) + len(entries)

    async def _restored(self, before: datetime, limit: int) -> int:
        """Delete what was restored from the archive before a time."""
        which = Range(table=self._db.names.meta, pk=("pk", RESTORED), sk="sk", low=_FIRST, high=stamp(before))
        entries = await self._db.items(which, limit=limit)
        rows = await self._rows.runs(entry["id"]["S"] for entry in entries)
        await self._delete_runs([item for item in rows.values() if "rst" in item])
        await self._db.write([DeleteItem(self._db.names.meta, _key_of(entry)) for entry in entries])
        return len(entries)

    async def _delete_runs(self, items: Sequence[Item]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def attempts(item: Item) -> list[DeleteItem]:
            which = Range(table=self._db.names.meta, pk=("pk", f"tries#{item['id']['S']}"), attributes=("pk", "sk"))
            async with gate:
                return [DeleteItem(self._db.names.meta, each) for each in await self._db.items(which)]

        runs = [run_of(item) for item in items]
        beside = await asyncio.gather(*(attempts(item) for item in items if _may_have_attempts(item)))
        letters = [DeleteItem(self._db.names.meta, member_key(run)) for run in runs if run.gate and blocks_key(run)]
        await self._db.write([*(each for some in beside for each in some), *letters])
        await self._db.write([DeleteItem(self._db.names.runs, {"id": item["id"]}) for item in items])

    async def _made(self, before: datetime, limit: int) -> int:
        """Delete entries of the journal of what was made of which no run is left.

        Those of runs that are still there stay; so each call goes on behind the last one, and begins again at the end.
        """
        gone = looked = 0
        parts = sorted(await self._rows.sub_shards(None))
        high = f"{max(int(before.timestamp() * 1000), 0):012x}"  # as ids begin
        for part in [part for part in parts if part >= self._made_to[0]]:
            low = f"{self._made_to[1]}{_FIRST}" if part == self._made_to[0] else _FIRST
            which = Range(
                table=self._db.names.meta, pk=("pk", made_partition(part)), sk="sk", low=low, high=max(low, high)
            )
            entries = await self._db.items(which, limit=limit - looked)
            gone += await self._delete_made(entries)
            if (looked := looked + len(entries)) >= limit:
                self._made_to = part, entries[-1]["sk"]["S"]
                return gone
        self._made_to = "", ""
        return gone

    async def _delete_made(self, entries: Sequence[Item]) -> int:
        ids = {
            entry["sk"]["S"]: [run_id for name in ("ids", "rids") if name in entry for run_id in unpacked(entry[name])]
            for entry in entries
        }
        keys = [{"id": {"S": run_id}} for run_id in sorted({run_id for some in ids.values() for run_id in some})]
        found = await self._db.batch_get(self._db.names.runs, keys, consistent=False, attributes=("id",))
        there = {item["id"]["S"] for item in found}
        old = [entry for entry in entries if there.isdisjoint(ids[entry["sk"]["S"]])]
        await self._db.write([DeleteItem(self._db.names.meta, _key_of(entry)) for entry in old])
        return len(old)

    # --- beside jobs

    async def _skips(self, before: datetime, limit: int) -> int:
        found = await self._db.items(self._old("skip", before), limit=limit)
        await self._db.write(
            [DeleteItem(self._db.names.jobs, {name: each[name] for name in ("job", "sk")}) for each in found]
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
        await self._db.write([DeleteItem(self._db.names.meta, trail)])
        await self._db.write([DeleteItem(self._db.names.jobs, item) for item in await self._db.items(beside)])
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


def _second(entry: Item) -> datetime:
    return second_of(time_of_stamp(entry["sk"]["S"]))


def _ended_before(item: Item, before: datetime) -> bool:
    return state_of(item) in FINAL and "N" in item.get("fi", {}) and time_of(item["fi"]) < before


def _may_have_attempts(item: Item) -> bool:
    """Whether a run may have had an attempt that did not succeed; most have been claimed once."""
    return item["s"]["S"] != "succeeded" or int(item["f"]["N"]) > 1
