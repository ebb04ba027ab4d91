"""Archives the history that is past its retention, and deletes what is archived."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta

import structlog

from horae.archive.manifest import Manifest, end_of
from horae.archive.writer import DayWriter
from horae.core.errors import Unavailable
from horae.core.model import SHARDS
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.files import Files
from horae.ports.store import Store

log = structlog.get_logger(__name__)

STEP = 5000
SETTLED_AFTER = timedelta(hours=1)  # a result is void long before that: no run of a day ends later


class Archiver:
    """Writes day after day to the archive, oldest first, and deletes each when its manifest is durable.

    The planner that has the shard of a day does so. Planners that disagree do double work, and nothing twice.
    """

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        files: Files,
        clock: Clock,
        metrics: Metrics,
        *,
        keep: timedelta,
        shards: Callable[[], Sequence[int]],
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self._keep = max(keep, SETTLED_AFTER)
        self._shards = shards
        self.waits = False  # for another node, which has the shard of the oldest day
        self._day: DayWriter | None = None
        self._failing = False

    async def step(self) -> bool:
        """Write a part, or delete some of what is archived; whether there was something to do."""
        before = (self._clock.now() - self._keep).date()
        try:
            busy = await self._step(before)
        except Unavailable as exc:
            self._metrics.archive_failed()
            if not self._failing:
                log.error("archive_failed", reason=str(exc), detail="history is kept until it can be archived")
            self._failing = True
            raise
        if self._failing:
            log.info("archive_recovered")
        self._failing = False
        return busy

    async def _step(self, before: date) -> bool:
        oldest = await self._store.ended(before=before, limit=1)
        self._metrics.archive_lag(timedelta() if oldest is None else self._lag(oldest.day))
        if oldest is None:
            self._day, self.waits = None, False
            return await self._delete(before, runs=0) > 0
        self.waits = oldest.day.toordinal() % SHARDS not in self._shards()
        if self.waits:
            return False
        writer = await self._writer(oldest.day)
        if writer.manifest is None:
            await self._write(writer)
            return True
        if not await self._delete(end_of(writer.day), runs=writer.manifest.runs):
            await self._account_for_more(writer, writer.manifest)
        return True

    async def _writer(self, day: date) -> DayWriter:
        if self._day is None or self._day.day != day:
            writer = DayWriter(self._store, self._blobs, self._files, day)
            await writer.open()
            self._day = writer
        return self._day

    async def _write(self, writer: DayWriter) -> None:
        filled = await writer.step()
        if filled is not None:
            self._metrics.archived(runs=filled.part.runs, size=filled.part.bytes)
            log.info("archive_part_written", file=filled.part.file, runs=filled.part.runs, bytes=filled.part.bytes)
        elif writer.manifest is not None:
            log.info("archive_day_written", day=str(writer.day), runs=writer.manifest.runs, bytes=writer.manifest.bytes)

    async def _account_for_more(self, writer: DayWriter, manifest: Manifest) -> None:
        """Archive what the manifest does not name; without that it is never deleted."""
        self._day = None
        if await self._store.ended(before=end_of(writer.day), limit=1) is None:
            return  # another process was quicker
        if await writer.amend() == 0:
            raise Unavailable(
                f"the store cannot delete its runs of {writer.day}, although the archive has all {manifest.runs}"
            )

    async def _delete(self, before: date, *, runs: int) -> int:
        return await self._store.prune(now=self._clock.now(), before=before, limit=STEP, runs=runs)

    def _lag(self, day: date) -> timedelta:
        """Return for how long the history of a day should have been archived."""
        due_at = datetime.combine(end_of(day), time(), UTC) + self._keep
        return max(self._clock.now() - due_at, timedelta())
