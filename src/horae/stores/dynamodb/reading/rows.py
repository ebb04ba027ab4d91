"""RowReader by their ids, and the ranges of indexes that lists follow."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from horae.core.model import Job, JobId, Run, RunId
from horae.stores.common.listing import LATEST
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database, Range
from horae.stores.dynamodb.items import Item, job_of_item, run_of, stamp, unpacked
from horae.stores.dynamodb.journals import MADE_TOGETHER, made_partition
from horae.stores.dynamodb.owners import KEY, Owners

REMEMBER = 10.0  # seconds
MOST_REMEMBERED = 1_000  # owners
_NOTHING_AFTER = "~"  # sorts after every digit


class RowReader:
    """Reads rows of runs and jobs, and knows the partitions of the indexes."""

    def __init__(self, db: Database, owners: Owners) -> None:
        self.db = db
        self._owners = owners
        self._parts: dict[str | None, tuple[list[str], float]] = {}  # of owners, and when that was read

    async def runs(self, run_ids: Iterable[str]) -> dict[str, Item]:
        """Return runs by id, as they are now."""
        keys = [{"id": {"S": run_id}} for run_id in dict.fromkeys(run_ids)]
        return {item["id"]["S"]: item for item in await self.db.batch_get(self.db.names.runs, keys)}

    async def jobs(self, job_ids: Iterable[str]) -> dict[str, Item]:
        """Return the definitions of recurring jobs by id, as they are now."""
        keys = [{"job": {"S": job_id}, "sk": {"S": "job"}} for job_id in dict.fromkeys(job_ids)]
        return {item["job"]["S"]: item for item in await self.db.batch_get(self.db.names.jobs, keys)}

    async def ended(self, entries: Iterable[Item]) -> list[Item]:
        """Return the rows of the runs in entries of the journal of what ended, as they are now."""
        return list((await self.runs(run_id for entry in entries for run_id in unpacked(entry["ids"]))).values())

    async def sub_shards(self, owner: str | None, *, begun: bool = False) -> list[str]:
        """Return the partitions of an owner, or of all owners, in the indexes by owner.

        Further pages of a list that has `begun` take what an earlier page found out, for a while.
        """
        known = self._parts.get(owner)
        if begun and known is not None and times.steady() - known[1] < REMEMBER:
            return known[0]
        if owner is None:
            counts: Mapping[str, int] = await self._owners.all()
        else:
            item = await self.db.get(self.db.names.meta, {"pk": {"S": KEY}, "sk": {"S": owner}})
            counts = {} if item is None else {owner: int(item["n"]["N"])}
        parts = [f"{name}#{part}" for name, count in counts.items() for part in range(count)]
        if len(self._parts) >= MOST_REMEMBERED:
            self._parts.clear()
        self._parts[owner] = parts, times.steady()
        return parts

    def by_due(self, index: str, parts: Sequence[str], low: str, high: str, *, forward: bool = False) -> list[Range]:
        """Return the ranges of runs with due times (and ids) from one to another, both included."""
        pk, sk = _KEYS[index]
        return [
            Range(
                table=self.db.names.runs,
                index=index,
                pk=(pk, part),
                sk=sk,
                low=low,
                high=high,
                forward=forward,
                consistent=False,
            )
            for part in parts
            if low <= high
        ]

    def of_jobs(self, parts: Sequence[str], low: str, high: str, *, forward: bool = False) -> list[Range]:
        """Return the ranges of recurring jobs with ids from one to another, both included."""
        return [
            Range(
                table=self.db.names.jobs,
                index="by_owner",
                pk=("os", part),
                sk="job",
                low=low,
                high=high,
                forward=forward,
                consistent=False,
            )
            for part in parts
            if low <= high
        ]

    def made(self, parts: Sequence[str], low: str, high: str) -> list[Range]:
        """Return the ranges of the journal of what was made that may hold ids from one to another."""
        return [
            Range(
                table=self.db.names.meta,
                pk=("pk", made_partition(part)),
                sk="sk",
                low=low,
                high=high[:MADE_TOGETHER] + _NOTHING_AFTER,
                forward=False,
                consistent=True,
            )
            for part in parts
            if low <= high
        ]


_KEYS = {"by_owner": ("os", "due"), "by_job": ("job", "due"), "by_slot": ("job", "slot_key"), "dead": ("os", "dead")}


def from_time(moment: datetime) -> str:
    """Return the least place of what is due at a time."""
    return stamp(moment)


def before_time(moment: datetime) -> str:
    """Return the place after everything that is due before a time; at the end of all times, after everything."""
    return stamp(moment) + _NOTHING_AFTER if moment >= LATEST else stamp(moment)


def through_time(moment: datetime) -> str:
    """Return the place after everything that is due at a time."""
    return stamp(moment) + _NOTHING_AFTER


def decoded_runs(items: Mapping[str, Item]) -> dict[RunId, Run]:
    """Return the runs of items."""
    return {RunId(run_id): run_of(item) for run_id, item in items.items()}


def decoded_jobs(items: Mapping[str, Item]) -> dict[JobId, Job]:
    """Return the recurring jobs of items."""
    return {JobId(job_id): job_of_item(item) for job_id, item in items.items()}
