"""Queues in PostgreSQL: what administrators say about them, how full they are and how late."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from horae.core.records import QueueSettings
from horae.ports.reader import QueueDepth
from horae.stores.postgres.base import PostgresBase

MAX_DEPTH = 10_000  # how far the runs of a queue are counted
LATELY = 1_000  # runs of a queue that its lateness is taken from


class PostgresQueues(PostgresBase):
    """The verbs of the store that deal with queues."""

    async def queues(self, *, now: datetime, owner: str | None = None) -> list[QueueDepth]:
        """The queues that have live runs (of an owner), and without an owner also those that have settings."""
        if owner is None:
            found = await self._db.rows("queue_depths", now, MAX_DEPTH)
        else:
            found = await self._db.rows("queue_depths_of_owner", now, MAX_DEPTH, owner)
        return [
            QueueDepth(
                queue=row[0], depth=row[1], oldest_due_at=row[2], running=row[3], paused=row[4], concurrency=row[5]
            )
            for row in found
        ]

    async def queue_lateness(self, *, since: datetime, owner: str | None = None) -> Mapping[str, timedelta]:
        """For each queue the 99th percentile of the lateness of runs that ended lately."""
        return {row[0]: row[1] for row in await self._db.rows("queue_lateness", since, owner, LATELY)}

    async def queue_settings(self, queue: str) -> QueueSettings:
        """What was said about a queue; the defaults when nothing was."""
        for paused, concurrency in await self._db.rows("queue_settings", queue):
            return QueueSettings(queue=queue, paused=paused, concurrency=concurrency)
        return QueueSettings(queue=queue)
