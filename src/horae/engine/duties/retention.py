"""Deletes history that is older than its retention, in bounded steps, and archives it before if there is an archive."""

from datetime import date, datetime, timedelta

from horae.engine.duties.archiving import Archiver
from horae.ports.blobs import AgingBlobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.run_logs import PREFIX

STEP = 5000
INTERVAL = timedelta(hours=1)
TURN = timedelta(minutes=1)  # until a node looks again whether the next day is its own to archive
NO_DAY = date.min  # before all history


class Retention:
    """Deletes runs that ended before the retention, and expired idempotency records and events.

    `blobs` only if they are kept outside the store. With an `archiver`, nothing else deletes history.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        keep: timedelta,
        blobs: AgingBlobs | None = None,
        archiver: Archiver | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._blobs = blobs
        self._archiver = archiver
        self._look_at_blobs_at: datetime | None = None

    async def tick(self) -> datetime | None:
        """Delete one step; returns now while there is more to delete."""
        now = self._clock.now()
        before = (now - self._keep).date() if self._archiver is None else NO_DAY
        deleted = await self._store.prune(now=now, before=before, limit=STEP)
        deleted += await self._prune_blobs(now)
        if self._archiver is not None:
            deleted += await self._archiver.step()
        if deleted:
            return now
        waits = self._archiver is not None and self._archiver.waits
        return now + (TURN if waits else INTERVAL)

    async def _prune_blobs(self, now: datetime) -> int:
        """Delete old logs; after a look that found none the next is an hour later, however busy the archive is."""
        if self._blobs is None or (self._look_at_blobs_at is not None and now < self._look_at_blobs_at):
            return 0
        deleted = await self._blobs.prune(PREFIX, before=now - self._keep, limit=STEP)
        self._look_at_blobs_at = now if deleted else now + INTERVAL
        return deleted
