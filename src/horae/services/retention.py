"""Drops history that is older than it has to be kept, in bounded steps."""

from datetime import datetime, timedelta

from horae.clock import Clock
from horae.store import Store

STEP = 5000
INTERVAL = timedelta(hours=1)


class Retention:
    """Forgets what ended too many days ago."""

    def __init__(self, store: Store, clock: Clock, *, keep: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    async def tick(self) -> datetime | None:
        """One step; answers now while there is more to drop."""
        now = self._clock.now()
        dropped = await self._store.prune(before=(now - self._keep).date(), limit=STEP)
        return now if dropped else now + INTERVAL
