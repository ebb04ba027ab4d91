"""Deletes history that is older than its retention, in bounded steps."""

from datetime import datetime, timedelta

from horae.ports.blobs import AgingBlobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.run_logs import PREFIX

STEP = 5000
INTERVAL = timedelta(hours=1)


class Retention:
    """Deletes runs that ended before the retention, and expired idempotency records and events.

    `blobs` only if they are kept outside the store.
    """

    def __init__(self, store: Store, clock: Clock, *, keep: timedelta, blobs: AgingBlobs | None = None) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._blobs = blobs

    async def tick(self) -> datetime | None:
        """Delete one step; returns now while there is more to delete."""
        now = self._clock.now()
        deleted = await self._store.prune(before=(now - self._keep).date(), limit=STEP)
        deleted += await self._store.expire(now=now, limit=STEP)
        if self._blobs is not None:
            deleted += await self._blobs.prune(PREFIX, before=now - self._keep, limit=STEP)
        return now if deleted else now + INTERVAL
