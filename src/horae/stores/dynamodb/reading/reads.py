"""Look-ups and lists in DynamoDB: the verbs of the port `Reader`."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from horae.aws_api.client import ServiceClient
from horae.core.job_rules import job_of
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Attempt, Job, JobId, Node, Run, RunId, State
from horae.core.records import QueueSettings
from horae.ports.reader import (
    MAX_QUEUES,
    ErrorGroup,
    JobFilter,
    Kept,
    KeptPage,
    KnownId,
    Ledger,
    Listing,
    QueueDepth,
    R,
    RunFilter,
)
from horae.ports.store import EndedRuns
from horae.stores.common.records import KINDS
from horae.stores.dynamodb.database import Range, counted
from horae.stores.dynamodb.gates import DynamoGates, place_of
from horae.stores.dynamodb.items import attempt_of, job_of_item, run_of
from horae.stores.dynamodb.lines import settings_key, settings_of
from horae.stores.dynamodb.reading.blobs import DynamoBlobs
from horae.stores.dynamodb.reading.dead_letters import DeadLetterLists
from horae.stores.dynamodb.reading.job_lists import JobLists
from horae.stores.dynamodb.reading.kept import KeptPages
from horae.stores.dynamodb.reading.last_runs import LastRuns
from horae.stores.dynamodb.reading.ledger import Ledgers
from horae.stores.dynamodb.reading.queues import QueueDepths
from horae.stores.dynamodb.reading.retention import Pruning
from horae.stores.dynamodb.reading.rows import RowReader
from horae.stores.dynamodb.reading.run_lists import RunLists
from horae.stores.dynamodb.reading.waiting import WaitingRows
from horae.stores.dynamodb.small_items import NODES, node_of, record_key, record_of, record_partitions

AT_ONCE = 16
MEMBERS = 1_000  # of a gate that one look-up reads


class DynamoReads(DynamoGates):
    """The verbs of the store that look up and list, and those that delete what is old."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        super().__init__(url, client=client)
        rows = RowReader(self._db, self._owners)
        waiting = WaitingRows(rows, self._lines)
        self.events = self._log
        self.blobs = DynamoBlobs(self._db)
        self._last_runs = LastRuns(rows)
        self._run_lists = RunLists(rows, held=waiting.held, complete=self._complete)
        self._job_lists = JobLists(rows, self._last_runs)
        self._ledgers = Ledgers(rows)
        self._queues = QueueDepths(rows, self._lines, waiting)
        self._letters = DeadLetterLists(rows, self._run_lists)
        self._kept = KeptPages(rows, self.blobs)
        self._pruning = Pruning(rows, self.blobs)
        self._by_id = rows

    # --- by id

    @counted
    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        recurring, shots = await asyncio.gather(self._by_id.jobs(job_ids), self._by_id.runs(job_ids))
        found: dict[JobId, Job] = {}
        for job_id in job_ids:
            if (item := recurring.get(job_id)) is not None:
                found[job_id] = job_of_item(item)
            elif (item := shots.get(job_id)) is not None and "sch" in item:
                found[job_id] = job_of(run_of(item))
        return found

    @counted
    async def runs(self, run_ids: Sequence[RunId], *, ended: bool = False) -> Mapping[RunId, Run]:
        items = await self._by_id.runs(run_ids)
        found = {RunId(ident): run_of(items[ident]) for ident in run_ids if ident in items}
        return {ident: run for ident, run in found.items() if not ended or run.state in FINAL}

    @counted
    async def attempts(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def of(run_id: RunId) -> list[Attempt]:
            which = Range(table=self._db.names.meta, pk=("pk", f"tries#{run_id}"))
            async with gate:
                return [attempt_of(item) for item in await self._db.items(which)]

        run_ids = list(dict.fromkeys(run_ids))
        runs = await self._by_id.runs(run_ids) if len(run_ids) > 1 else {}
        asked = [run_id for run_id in dict.fromkeys(run_ids) if not _has_only_succeeded(runs.get(run_id))]
        found = zip(asked, await asyncio.gather(*map(of, asked)), strict=True)
        return {run_id: attempts for run_id, attempts in found if attempts}

    @counted
    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        return await self._last_runs.of_jobs(job_ids, now)

    @counted
    async def ids(self, first: str, last: str, *, limit: int) -> list[KnownId]:
        return await self._job_lists.ids(first, last, limit)

    @counted
    async def records(self, kind: type[R], *, owner: str = "", key: str | None = None) -> list[R]:
        if kind is QueueSettings:
            return await self._settings(key)  # type: ignore[return-value]
        name = KINDS[kind]
        if key is not None:
            item = await self._db.get(self._db.names.meta, record_key(name, owner, key))
            return [] if item is None else [record_of(kind, item)]
        parts = record_partitions(name, owner)
        ranges = [Range(table=self._db.names.meta, pk=("pk", part)) for part in parts]
        found = [item for items in await asyncio.gather(*map(self._db.items, ranges)) for item in items]
        return [record_of(kind, item) for item in sorted(found, key=lambda item: str(item["sk"]["S"]))]

    async def _settings(self, queue: str | None) -> list[QueueSettings]:
        if queue is not None:
            item = await self._db.get(self._db.names.meta, settings_key(queue))
            return [] if item is None else [settings_of(item)]
        return [settings for _, settings in sorted((await self._lines.directory()).settings.items())]

    @counted
    async def nodes(self) -> list[Node]:
        items = await self._db.items(Range(table=self._db.names.meta, pk=("pk", NODES)))
        return sorted(map(node_of, items), key=lambda node: (node.started_at, node.id))

    @counted
    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        if run.gate is None:
            return []
        gate = await self._gate(run.gate, MEMBERS)
        ahead = [
            other
            for other in gate.members
            if place_of(other) < place_of(run) or (other.state in HELD and other.id != run.id)
        ]
        return ahead[:limit]

    # --- lists

    @counted
    async def list_jobs(
        self, which: JobFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Job]:
        return await self._job_lists.page(which, cursor=cursor, limit=limit, look=look)

    @counted
    async def list_runs(
        self, which: RunFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Run]:
        return await self._run_lists.page(which, cursor=cursor, limit=limit, look=look)

    @counted
    async def ledger(
        self, job_id: JobId, *, start: datetime, end: datetime, limit: int, look: int | None = None
    ) -> Ledger:
        return await self._ledgers.of(job_id, start=start, end=end, limit=limit, look=look)

    @counted
    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        return await self._letters.groups(which)

    @counted
    async def count_dead_letters(self) -> int:
        return await self._letters.count()

    @counted
    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        return await self._kept.page(owner, part, cursor=cursor, limit=limit)

    # --- queues

    @counted
    async def queues(
        self,
        *,
        now: datetime,
        owner: str | None = None,
        queue: str | None = None,
        after: str = "",
        limit: int = MAX_QUEUES,
    ) -> list[QueueDepth]:
        return await self._queues.depths(now=now, owner=owner, queue=queue, after_name=after, limit=limit)

    @counted
    async def queue_lateness(
        self, *, since: datetime, owner: str | None = None, after: str = "", until: str | None = None
    ) -> Mapping[str, timedelta]:
        return await self._queues.lateness(since=since, owner=owner, after_name=after, until_name=until)

    @counted
    async def due_soon(self, *, now: datetime, within: timedelta) -> Mapping[str, int]:
        return await self._queues.due_soon(now=now, within=within)

    # --- upkeep

    @counted
    async def ended(self, *, before: date, after: Run | None = None, limit: int) -> EndedRuns | None:
        return await self._pruning.ended(before, after, limit)

    @counted
    async def prune(self, *, now: datetime, before: date, limit: int, runs: int | None = None) -> int:
        return await self._log.expire(now=now, limit=limit) + await self._pruning.prune(before, limit, runs)


def _has_only_succeeded(item: dict[str, Any] | None) -> bool:
    """Whether a run cannot have an attempt that did not succeed: most end with their first claim."""
    if item is None:
        return False
    return int(item["f"]["N"]) == 0 or (item["s"]["S"] == State.SUCCEEDED and int(item["f"]["N"]) == 1)
