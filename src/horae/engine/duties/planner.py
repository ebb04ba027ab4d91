"""Creates runs ahead of their time for the jobs of this node's shards."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from horae.core.decisions.firing import REFILL, Due, Page, fill, fire
from horae.core.ids import Ids, NewId
from horae.core.job_rules import cancel_backfill
from horae.core.model import Backfill, JobStatus
from horae.metrics import Metrics
from horae.planning import write_firings, write_pages
from horae.ports.clock import Clock
from horae.ports.store import Plannable, Store

BATCH = 500
REST = 2  # pause between rounds, as a multiple of the last one's duration: planning ahead must not delay due runs


class Planner:
    """Fires due jobs and fills backfills; any number of planners may do so at once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        horizon: timedelta,
        shards: Callable[[], Sequence[int]],
        new_id: Ids,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self.horizon = horizon  # how far ahead it plans
        self.refill = REFILL  # a job is planned again when less than this share of the horizon is left
        self._shards = shards
        self._new_id = new_id

    async def tick(self) -> datetime | None:
        """Fire jobs and fill backfills that need planning now; returns when there is something to plan again."""
        now = self._clock.now()
        found = await self._store.plannable(self._shards(), now=now, limit=BATCH)
        lags = (now - due.job.plan_at for due in found.jobs if due.job.plan_at is not None)
        self._metrics.planned(max(lags, default=timedelta()))
        new_id = self._new_id.batched()
        firings = [fire(due, now=now, horizon=self.horizon, new_id=new_id, refill=self.refill) for due in found.jobs]
        if firings:
            await write_firings(self._store, firings)
        if pages := [_page(backfill, due, now, new_id) for backfill, due in found.backfills]:
            await write_pages(self._store, pages)
        return self._next_at(found, now)

    def _next_at(self, found: Plannable, now: datetime) -> datetime | None:
        """Return when to plan again: at once if there is more and something was urgent, or after a rest."""
        if len(found.jobs) < BATCH and len(found.backfills) < BATCH:
            return found.next_at
        soon = now + self.horizon / 2
        if found.backfills or any(due.job.next_fire_at is None or due.job.next_fire_at < soon for due in found.jobs):
            return now
        return self._clock.now() + REST * (self._clock.now() - now)


def _page(backfill: Backfill, due: Due, now: datetime, new_id: NewId) -> Page:
    """Return the next runs of a backfill; none if its job was cancelled and the cancel did not get to delete it."""
    if due.job.status is JobStatus.CANCELLED:
        return cancel_backfill(due.job, backfill)
    return fill(backfill, due, now=now, new_id=new_id)
