"""Heartbeats in PostgreSQL, what dead nodes leave behind, and the removal of what is too old to be kept."""

from datetime import UTC, date, datetime, time, timedelta

from horae.core.model import NodeId, Run
from horae.core.records import RECEIPT_LIFE
from horae.core.signals import Kind, Signal
from horae.ports.events import EVENT_LIFE
from horae.ports.store import Beat
from horae.stores.postgres.base import PostgresBase
from horae.stores.postgres.codecs import day_of, node_of
from horae.stores.postgres.connection.database import retried
from horae.stores.postgres.held import left_behind


class PostgresUpkeep(PostgresBase):
    """The verbs of the store that keep it in order."""

    @retried
    async def beat(
        self, node: NodeId, *, now: datetime, running: int, dead_after: timedelta, wall_ahead: timedelta = timedelta()
    ) -> Beat | None:
        """Renew a node's lease and return the live nodes; None when the node was removed."""
        async with self._db.session() as session:
            if await session.value("beat", node, now, running, wall_ahead) is None:
                return None
            found = await session.rows("live_nodes", now - dead_after)
        return Beat(nodes=[node_of(row) for row in found])

    async def orphans(self, *, limit: int) -> list[Run]:
        """Held runs whose node is not registered; those of nodes that left nothing are not looked for again.

        To look for them takes long while much waits, so one does it for all.
        """
        gone = await self._db.rows("graves")
        if not gone:
            return []
        nodes, last_at = [row[0] for row in gone], max(row[1] for row in gone)
        async with self._db.transaction() as session:
            if not await session.value("lock_graves"):
                return []
            found = await left_behind(session, nodes, last_at=last_at, limit=limit)
            if len(found) < limit:  # that is all
                await session.rows("level_graves", sorted({*nodes} - {run.node for run in found}))
        return found

    @retried
    async def tidy(self, *, now: datetime) -> int:
        """Free gates of nodes that are gone, and wake parked runs that nothing blocks; how many were found."""
        await self._ensure_days({day_of(now), day_of(now + timedelta(days=1))})  # so that nobody waits at midnight
        async with self._db.session() as session:
            freed = await session.rows("free_gates_of_the_gone")
            woken = await session.rows("wake_unblocked", now)
        if woken or freed:
            self._signals.send([Signal(kind=Kind.DUE, at=now)])
        return len(freed) + len(woken)

    @retried
    async def expire(self, *, now: datetime, limit: int) -> int:
        """Delete receipts older than RECEIPT_LIFE and events older than EVENT_LIFE; how many rows, 0 when done."""
        async with self._db.session() as session:
            receipts = await session.rows("expire_receipts", now - RECEIPT_LIFE, limit)
            events = await session.rows("expire_events", now - EVENT_LIFE, limit)
        return len(receipts) + len(events)

    @retried
    async def prune(self, *, before: date, limit: int) -> int:
        """Drop history, attempts, skips and blobs of days before; how many rows or days went, 0 when done."""
        self._days = {day for day in self._days if day >= before}
        midnight = datetime.combine(before, time(), UTC)
        async with self._db.session() as session:
            days = await session.value("drop_days", before, limit)
            await session.rows("prune_blocks", before)  # what they blocked is found by the next `tidy`
            skips = await session.rows("prune_skips", midnight, limit)
            blobs = await session.rows("prune_blobs", midnight, limit)
        return int(days) + len(skips) + len(blobs)
