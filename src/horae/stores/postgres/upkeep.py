"""The background duties in PostgreSQL: planning, heartbeats, runs of dead nodes, retention."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import asdict

from horae.core.changes import RunRestored
from horae.core.decisions.firing import MAX_UNSTARTED, Due
from horae.core.model import NodeId, Run
from horae.core.records import IDEMPOTENCY_LIFE
from horae.core.signals import Kind, Signal
from horae.ports.events import EVENT_LIFE
from horae.ports.store import Beat, EndedRuns, Plannable
from horae.stores.common.codecs import JOB_COLUMNS, encode_error, run_row
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import BEGINNING, LOWEST_ID, ROWS, Places, day_of
from horae.stores.postgres.connection.database import Database, Session, retried

LOOK_AT_GATES = 1000  # in one `tidy`, for parked runs that nothing blocks
RECHECK_LANES = 200  # in one `tidy`
REMOVE_LANES_SECONDS = 600  # between two looks for lanes and shelves that nobody uses any more
LOOK_AT_SHELVES = 1000  # in one of these
COUNT_SECONDS = 600.0  # for the runs of an archived day, before it is dropped; only what is written to that day waits
LOOK_AT = 50_000  # runs in one statement that looks for held ones
_COUNTS = len(JOB_COLUMNS)  # where the counts of a job's runs follow its columns
_PAGE = _COUNTS + 2  # where the columns of a backfill follow these


class PostgresUpkeep(PostgresBase):
    """The verbs of the store that planners, the janitor and retention use."""

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        async with self._db.session() as session:
            jobs = await session.rows("plannable_jobs", shards, now, limit, MAX_UNSTARTED)
            pages = await session.rows("plannable_backfills", shards, now, limit, MAX_UNSTARTED)
            next_at = await session.value("next_plan_at", shards, now)
        return Plannable(
            jobs=[_due(row) for row in jobs],
            backfills=[(ROWS.backfill(row[_PAGE:]), _due(row)) for row in pages],
            next_at=next_at,
        )

    @retried
    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        async with self._db.session() as session:
            if await session.value("beat", node, now, running, wall_ahead) is None:
                return None
            found = await session.rows("nodes_since", now - dead_after)
        return Beat(nodes=[ROWS.node(row) for row in found])

    async def orphans(self, *, limit: int) -> list[Run]:
        """Held runs whose node is not registered; dead nodes that hold nothing are not looked for again.

        The search takes long while many runs wait, so one process does it for all.
        """
        dead = await self._db.rows("dead_nodes")
        if not dead:
            return []
        nodes, last_at = [row[0] for row in dead], max(row[1] for row in dead)
        async with self._db.transaction() as session:
            if not await session.value("lock_dead_nodes"):
                return []
            found = await find_held(session, nodes, last_at=last_at, limit=limit)
            if len(found) < limit:  # that is all
                await session.rows("forget_dead_nodes", sorted({*nodes} - {run.node for run in found}))
        return found

    @retried
    async def tidy(self, *, now: datetime) -> int:
        await self._ensure_days({day_of(now), day_of(now + timedelta(days=1))})  # so that no result waits at midnight
        async with self._db.session() as session:
            freed = await session.rows("free_gates_of_dead_nodes")
            [(last, _), *woken] = await session.rows("wake_unblocked", now, self._looked_to, LOOK_AT_GATES)
            self._looked_to = last or ""
            await session.rows("settle_lanes", now)
            await session.rows("put_off_lanes", now)
            self._rechecked_to = await session.value("recheck_lanes", self._rechecked_to, RECHECK_LANES) or 0
            if monotonic() - self._removed_lanes_at > REMOVE_LANES_SECONDS:
                self._removed_lanes_at = monotonic()
                await session.rows("remove_lanes")
                self._shelved_to = await session.value("remove_shelves", self._shelved_to, LOOK_AT_SHELVES) or 0
        if woken or freed:
            self._signals.send([Signal(kind=Kind.DUE, at=now)])
        return len(freed) + len(woken)

    async def ended(self, *, before: date, after: Run | None = None, limit: int) -> EndedRuns | None:
        async with self._db.session() as session:
            if after is not None and after.finished_at is not None:
                day = day_of(after.finished_at)
                rows = await session.rows("ended_page", day, after.id, limit)
                return EndedRuns(day=day, runs=[ROWS.run(row) for row in rows])
            for (day,) in await session.rows("history_days", before):
                if rows := await session.rows("ended_page", day, LOWEST_ID, limit):
                    return EndedRuns(day=day, runs=[ROWS.run(row) for row in rows])
        return None

    @retried
    async def prune(self, *, now: datetime, before: date, limit: int, runs: int | None = None) -> int:
        self._days = {day for day in self._days if day >= before}
        midnight = datetime.combine(before, time(), UTC)
        async with self._db.session() as session:
            requests = await session.rows("expire_idempotency", now - IDEMPOTENCY_LIFE, limit)
            events = await session.rows("expire_events", now - EVENT_LIFE, limit)
            days = await session.value("drop_days", before, limit) if runs is None else 0
            await session.rows("prune_blocks", before)  # what they blocked is found by the next `tidy`
            skips = await session.rows("prune_skips", midnight, limit)
            jobs = await session.rows("prune_jobs", midnight, limit)
            blobs = await session.rows("prune_blobs", midnight, limit)
        if runs is not None:
            async with self._db.session(COUNT_SECONDS) as session:
                [(days,)] = await session.rows("drop_archived_days", before, limit, runs)
        return int(days) + sum(map(len, (requests, events, skips, jobs, blobs)))


async def restore(session: Session, restored: Sequence[RunRestored], places: Places) -> None:
    """Write runs that ended long ago into the partition of the day that restores them, unless they are there."""
    if not restored:
        return
    await session.rows("lock_restores")
    rows = await session.rows("restore_runs", _restored_rows(restored, places))
    written = {row[0] for row in rows}
    attempts = [
        {**asdict(attempt), "error": encode_error(attempt.error), "ended_on": day_of(each.at)}
        for each in restored
        if each.run.id in written
        for attempt in each.attempts
    ]
    await session.rows("forget_attempts", sorted(written))
    await session.rows("restore_attempts", msgspec.json.encode(attempts).decode())


def _restored_rows(restored: Sequence[RunRestored], places: Places) -> str:
    """The rows of `history`, as JSON text."""
    rows = []
    for each in restored:
        run = each.run
        _, shelf = places[run.owner, run.spec.task, run.spec.queue, run.spec.priority]
        rows.append({**run_row(run), "shelf": shelf, "ended_on": day_of(each.at)})
    return msgspec.json.encode(rows).decode()


def _due(row: Sequence[Any]) -> Due:
    """A job with how many of its runs are alive, from JOB_COLUMNS and two counts."""
    return Due(job=ROWS.job(row), unstarted=row[_COUNTS], live=row[_COUNTS + 1])


# Held runs have no index of their own. They are looked for among all that may be claimed, which takes long while many
# runs wait: so piece by piece, and only where a node is dead, a limit is new, or a claim of a node got no answer.


async def find_held(
    session: Session, nodes: Sequence[NodeId], *, last_at: datetime, limit: int | None = None, at_once: int = LOOK_AT
) -> list[Run]:
    """Runs that the nodes hold and that wake by `last_at`; if there are fewer than `limit`, all."""
    found: list[Run] = []
    for (lane,) in await session.rows("lanes_up_to", last_at):
        place: datetime | None = BEGINNING
        while place is not None and (limit is None or len(found) < limit):
            rows = await session.rows("orphans", nodes, lane, place, last_at, at_once)
            place = rows[0][-1]
            found += [ROWS.run(row) for row in rows if row[0] is not None]
    return found[:limit]


async def count_held(database: Database, queue: str) -> None:
    """Count the held runs of a queue that has a new limit; claims that know of the limit count theirs themselves."""
    await database.rows("await_claims")
    for lane, last_at in await database.rows("lanes_to_count", queue):
        place = BEGINNING if last_at is not None else None  # else there never was a node
        while place is not None:
            place = await database.value("count_held", lane, place, last_at, LOOK_AT)
