"""Cleans up after dead nodes; every node does so, and compare-and-set keeps them from doing it twice."""

import itertools
from datetime import datetime, timedelta

import structlog

from horae.core.decisions.results import lost
from horae.core.effects import remove_dead_node
from horae.core.model import State
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.failure_log import FailureLog
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)

BATCH = 1000


class Janitor:
    """Declares silent nodes dead, returns their runs and frees their gates.

    While the store does not answer, no heartbeat arrives. So a node whose own heartbeats failed gives the others time
    to come back before it declares them dead.
    """

    def __init__(self, store: Store, clock: Clock, lease: Lease, timing: Timing) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._timing = timing
        self._failures = FailureLog()

    async def tick(self) -> datetime | None:
        """Sweep once; returns when the next sweep is due."""
        if self._lease.safe and self._lease.safe_for >= 2 * self._timing.heartbeat:
            await self._sweep(self._clock.now())
        return self._clock.now() + self._timing.heartbeat

    async def _sweep(self, now: datetime) -> None:
        """Clean up in this order, so that a crash in between only leaves work for the next sweep."""
        await self._remove_dead(now)
        await self._return_orphans(now)
        await self._store.tidy(now=now)

    async def _remove_dead(self, now: datetime) -> None:
        """Remove nodes that stopped beating; one that beats meanwhile stays."""
        silent = [node for node in await self._store.nodes() if node.beat_at < now - self._timing.dead_after]
        refusals = await self._store.apply([remove_dead_node(node) for node in silent])
        seconds = self._timing.dead_after / timedelta(seconds=1)
        for node, refusal in zip(silent, refusals, strict=True):
            if refusal is None:
                log.warning("node_declared_dead", node=node.id, host=node.name, dead_after=seconds)

    async def _return_orphans(self, now: datetime) -> None:
        returned = 0
        while orphans := await self._store.orphans(limit=BATCH):
            settled = [lost(run, now) for run in orphans]
            written = await self._store.settle(settled)
            for result in itertools.compress(settled, written):
                if result.run.state is State.FAILED:
                    self._failures.add(result)
            done = sum(written)
            returned += done
            if len(orphans) < BATCH or not done:
                break
        if returned:
            log.warning("orphaned_runs_returned", runs=returned)
