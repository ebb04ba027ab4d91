"""Drops history that is older than it has to be kept, in bounded steps."""

from datetime import datetime, timedelta

from horae.ports.blobs import AgingBlobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.run_logs import PREFIX

STEP = 5000
INTERVAL = timedelta(hours=1)


class Retention:
    """Forgets what ended too many days ago, and receipts and events, which have a life of their own.

    `blobs` only if they are kept apart from the store.
    """

    def __init__(self, store: Store, clock: Clock, *, keep: timedelta, blobs: AgingBlobs | None = None) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._blobs = blobs

    async def tick(self) -> datetime | None:
        """One step; answers now while there is more to drop."""
        now = self._clock.now()
        dropped = await self._store.prune(before=(now - self._keep).date(), limit=STEP)
        dropped += await self._store.expire(now=now, limit=STEP)
        if self._blobs is not None:
            dropped += await self._blobs.prune(PREFIX, before=now - self._keep, limit=STEP)
        return now if dropped else now + INTERVAL
