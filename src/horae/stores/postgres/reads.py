"""Look-ups and lists in PostgreSQL: live runs and history are read apart, each by its own index, and merged here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

from horae.core.drafts import MAX_INLINE_PARAMS
from horae.core.ids import born_at
from horae.core.job_rules import job_of
from horae.core.model import SHARDS, Attempt, Job, JobId, Node, Run, RunId
from horae.core.records import QueueSettings
from horae.core.values import replace
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
from horae.stores.common.codecs import decode_error
from horae.stores.common.listing import (
    EARLIEST,
    WHOLE,
    Ident,
    Micros,
    Number,
    Position,
    amount_of,
    decode_cursor,
    encode_cursor,
    micros_of,
    page,
    time_of,
)
from horae.stores.common.records import KINDS, decode_record
from horae.stores.postgres.base import PostgresBase, find_ended
from horae.stores.postgres.codecs import BEGINNING, FIRST_DAY, LOWEST_ID, ROWS, first_day
from horae.stores.postgres.connection.database import Session
from horae.stores.postgres.list_queries import JobQuery, RunQuery

MAX_DEPTH = 10_000  # how far the runs of a queue, or dead letters, are counted
FIRST_ID = "0" * 32
LATELY = 1_000  # runs of a queue that its lateness is taken from


class PostgresReads(PostgresBase):
    """The read port."""

    async def jobs(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        async with self._db.session() as session:
            found = [ROWS.job(row) for row in await session.rows("jobs_among", job_ids)] if job_ids else []
            jobs = {job.id: job for job in found}
            once = await _find_runs(session, [RunId(job_id) for job_id in job_ids if job_id not in jobs])
        return jobs | {run.job_id: job_of(run) for run in once if run.one_shot}

    async def runs(self, run_ids: Sequence[RunId], *, ended: bool = False) -> Mapping[RunId, Run]:
        async with self._db.session() as session:
            runs = await (find_ended if ended else _find_runs)(session, run_ids)
        return {run.id: run for run in runs}

    async def records(self, kind: type[R], *, owner: str = "", key: str | None = None) -> list[R]:
        rows: list[Any]
        if kind is QueueSettings:
            found = await self._db.rows("queue_settings", key)
            rows = [QueueSettings(queue=row[0], paused=row[1], concurrency=row[2]) for row in found]
        else:
            rows = [decode_record(*row) for row in await self._db.rows("records", KINDS[kind], owner, key)]
        return rows

    async def ahead_of(self, run: Run, *, limit: int = 10) -> list[Run]:
        if run.gate is None:
            return []
        return [ROWS.run(row) for row in await self._db.rows("ahead_of", run.id, run.gate, run.due_at, limit)]

    async def attempts(self, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
        found: dict[RunId, list[Attempt]] = defaultdict(list)
        for row in await self._db.rows("attempts", run_ids):
            found[RunId(row[0])].append(ROWS.attempt(row))
        return dict(found)

    async def last_runs(self, job_ids: Sequence[JobId], *, now: datetime) -> Mapping[JobId, Run]:
        rows = await self._db.rows("last_runs", job_ids, now, first_day(job_ids))
        runs = [ROWS.run(row) for row in rows]
        return {run.job_id: run for run in runs}

    async def list_runs(
        self, which: RunFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Run]:
        query = RunQuery.of(which, cursor, limit, look)
        found: dict[RunId, Run] = {}
        edges: list[Position] = []
        async with self._session(look) as session:
            for search in query.searches():
                searched_to = time_of(int(max(edges)[0])) if edges else None
                arguments = query.arguments(search, found.values(), searched_to)
                for row in await session.rows(f"list_{search.name}", *arguments):
                    found[row[0]] = ROWS.run(row)
                if look is not None and not search.few:
                    ends = await session.rows(f"edge_of_{search.name}", *arguments, query.floor(found.values()))
                    edges += [(micros_of(due_at), ident) for due_at, ident in ends]
        cut = page(found.values(), limit, lambda run: (micros_of(run.due_at), run.id), edges)
        searched_to = None if cut.edge is None else time_of(int(cut.edge[0]))
        return Listing(items=cut.rows, cursor=cut.cursor, searched_to=searched_to)

    async def list_jobs(
        self, which: JobFilter, *, cursor: str | None, limit: int, look: int | None = None
    ) -> Listing[Job]:
        query = JobQuery.of(which, cursor, limit, look)
        found: dict[str, Job] = {}
        edges: list[str] = []
        async with self._session(look) as session:
            for search in query.searches():
                decode = ROWS.job if search.name.startswith("jobs") else ROWS.one_shot
                arguments = query.arguments(search, found, max(edges, default=LOWEST_ID))
                for row in await session.rows(f"list_{search.name}", *arguments):
                    found[row[0]] = decode(row)
                if look is not None and not search.few:
                    ends = await session.rows(f"edge_of_{search.name}", *arguments, query.floor(found))
                    edges += [ident for _, ident in ends]
        cut = page(found.values(), limit, lambda job: (job.id,), [(edge,) for edge in edges])
        searched_to = None if cut.edge is None else born_at(str(cut.edge[0]))
        return Listing(items=cut.rows, cursor=cut.cursor, searched_to=searched_to)

    async def ids(self, first: str, last: str, *, limit: int) -> list[KnownId]:
        found = await self._db.rows("ids", first, last, limit)
        return [KnownId(id=ident, owner=owner, job=job, run=run) for ident, owner, job, run in found]

    def _session(self, look: int | None) -> AbstractAsyncContextManager[Session]:
        """A session for a list: with a bound it is a user's, otherwise the engine or an act needs it."""
        return self._db.session() if look is None else self._db.browsing()

    async def ledger(
        self, job_id: JobId, *, start: datetime, end: datetime, limit: int, look: int | None = None
    ) -> Ledger:
        async with self._session(look) as session:
            live = await session.rows("ledger_live", job_id, start, end, limit)
            ended = await session.rows("ledger_ended", job_id, start, end, limit)
            skips = await session.rows("ledger_skips", job_id, start, end, look or WHOLE)
            backfills = await session.rows("ledger_backfills", job_id, start, end)
        runs = {row[0]: ROWS.run(row) for row in (*live, *ended)}
        return Ledger(
            runs=sorted(runs.values(), key=lambda run: (run.slot or EARLIEST, run.id))[:limit],
            skips=[ROWS.skip(row) for row in skips],
            backfills=[ROWS.backfill(row) for row in backfills],
        )

    async def nodes(self) -> list[Node]:
        return [ROWS.node(row) for row in await self._db.rows("nodes_since", BEGINNING)]

    async def queues(
        self,
        *,
        now: datetime,
        owner: str | None = None,
        queue: str | None = None,
        after: str = "",
        limit: int = MAX_QUEUES,
    ) -> list[QueueDepth]:
        name, whose = ("queue_depths", ()) if owner is None else ("queue_depths_of_owner", (owner,))
        found = await self._db.browse(name, now, MAX_DEPTH, queue, after, limit, *whose)
        return [QueueDepth(**dict(zip(QueueDepth.__struct_fields__, row, strict=True))) for row in found]

    async def queue_lateness(
        self, *, since: datetime, owner: str | None = None, after: str = "", until: str | None = None
    ) -> Mapping[str, timedelta]:
        return dict(map(tuple, await self._db.browse("queue_lateness", since, owner, LATELY, after, until)))

    async def due_soon(self, *, now: datetime, within: timedelta) -> Mapping[str, int]:
        rows = await self._db.browse("due_soon", now, now + within, MAX_DEPTH, list(range(SHARDS)))
        return {row[0]: row[1] for row in rows}

    async def count_dead_letters(self) -> int:
        [(count,)] = await self._db.browse("count_dead_letters", MAX_DEPTH)
        return int(count)

    async def kept_by(self, owner: str, part: Kept, *, cursor: str | None, limit: int) -> KeptPage:
        place: tuple[Any, ...] = (0, BEGINNING, FIRST_ID)
        if cursor is not None:
            shelf, due_at, ident = decode_cursor(cursor, Number, Micros, Ident)
            place = (shelf, time_of(due_at), ident)
        behind = place[-1:] if part is Kept.JOBS else place
        rows = await self._db.rows(f"kept_{part}", owner, limit, MAX_INLINE_PARAMS, *behind)
        amount = amount_of(part, (row[:3] for row in rows))
        if not rows or rows[0][3] is None:
            return KeptPage(amount=amount, cursor=None)
        shelf, due_at, ident = rows[0][3:]
        return KeptPage(amount=amount, cursor=encode_cursor(shelf, micros_of(due_at), ident))

    async def dead_letter_groups(self, which: RunFilter) -> list[ErrorGroup]:
        query = RunQuery.of(replace(which, dead_letters=True), None, MAX_DEPTH - 1, 2 * MAX_DEPTH)
        groups = query.groups()
        found = await self._db.browse(groups.name, *query.arguments(groups))
        return [group for row in found if (group := _group(row)) is not None]


async def _find_runs(session: Session, run_ids: Sequence[RunId]) -> list[Run]:
    """Runs, alive or ended; live ones are read first, for a run never comes back from the history."""
    found = [ROWS.run(row) for row in await session.rows("live_runs_among", run_ids)] if run_ids else []
    for first in (None, FIRST_DAY):  # a clock that was set back may end a run long before the day of its id
        missing = sorted({*run_ids} - {run.id for run in found})
        found += await find_ended(session, missing, first)
    return found


def _group(row: Sequence[Any]) -> ErrorGroup | None:
    error = decode_error(row[1])
    if error is None:
        return None
    return ErrorGroup(error=error, count=row[2], oldest_at=row[3], newest_at=row[4], task=row[0], example=RunId(row[5]))
