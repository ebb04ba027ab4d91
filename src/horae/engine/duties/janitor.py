"""Looks after what dead nodes leave behind; every node does so, and compare-and-set keeps them from doubling it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from horae.core.results import lost
from horae.engine.cluster.lease import Lease, Timing
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)

BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep found."""

    buried: int
    returned: int
    tidied: int


class Janitor:
    """Buries nodes that stopped beating, returns their runs, frees their gates.

    While the store does not answer, nobody beats. So a node that could not beat itself gives the others time to come
    back before it calls them dead.
    """

    def __init__(self, store: Store, clock: Clock, lease: Lease, timing: Timing) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing

    async def tick(self) -> datetime | None:
        """One sweep; answers when the next is due."""
        await self.sweep()
        return self._clock.now() + self._timing.heartbeat

    async def sweep(self) -> Swept:
        """Bury, return, tidy: in this order, so that a crash in between leaves only work for the next sweep."""
        now = self._clock.now()
        if not self._lease.safe or self._lease.safe_for < 2 * self._timing.heartbeat:
            return Swept(buried=0, returned=0, tidied=0)
        buried = await self._store.bury(now=now, dead_after=self._timing.dead_after)
        for node in buried:
            log.warning("node_buried", node=node, dead_after=self._timing.dead_after / timedelta(seconds=1))
        returned = await self._return_orphans(now)
        tidied = await self._store.tidy(now=now)
        return Swept(buried=len(buried), returned=returned, tidied=tidied)

    async def _return_orphans(self, now: datetime) -> int:
        returned = 0
        while orphans := await self._store.orphans(limit=BATCH):
            done = sum(await self._store.settle([lost(run, now) for run in orphans]))
            returned += done
            if len(orphans) < BATCH or not done:
                break
        if returned:
            log.warning("runs_returned", runs=returned)
        return returned
