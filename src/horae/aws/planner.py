"""One round of what planners do in the background, for a function that a schedule calls each minute."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from horae.aws.environment import Environment, Membership
from horae.core.errors import Misconfigured
from horae.core.model import SHARDS
from horae.engine.cluster.lease import Lease
from horae.engine.duties.janitor import Janitor
from horae.engine.duties.planner import Planner
from horae.engine.duties.watcher import Watcher
from horae.runtime.wiring import Parts, retention_of

LEAST_HORIZON = timedelta(minutes=2)  # schedules call each minute, and not to the second
RETENTION_EVERY = timedelta(hours=1)

Tick = Callable[[], Awaitable[datetime | None]]


class PlannerDuties:
    """The background duties of all shards, kept between invocations: the watcher goes on where it was."""

    def __init__(self, parts: Parts) -> None:
        timing = parts.timing
        if timing.horizon < LEAST_HORIZON:
            raise Misconfigured(
                "HORAE_HORIZON_SECONDS must be at least 120 for planner_handler, and the same for all other processes:"
                " its schedule plans once a minute"
            )
        self._parts = parts
        self._planner = Planner(
            parts.store, parts.clock, parts.metrics, horizon=timing.horizon, shards=_all_shards, new_id=parts.ids
        )
        self._watcher = None
        if parts.queue is not None:
            self._watcher = Watcher(
                parts.store, parts.queue, parts.clock, parts.metrics.tickets, timing=timing, shards=_all_shards
            )
        self._retention = retention_of(parts, _all_shards)
        self._retained_at: datetime | None = None

    async def round(self, lease: Lease, *, until: datetime) -> int:
        """Do everything once, most urgent first; returns how often the planner looked."""
        clock = self._parts.clock
        rounds = await self._repeat(self._planner.tick, until)
        if self._watcher is not None:
            await self._watcher.tick()
        await self._clean_up(lease)
        now = clock.now()
        if now < until and (self._retained_at is None or now >= self._retained_at + RETENTION_EVERY):
            await self._repeat(self._retention.tick, until)
            self._retained_at = now
        return rounds

    async def _clean_up(self, lease: Lease) -> None:
        """Return the runs of dead nodes; if some are silent, they get time to come back, as from any other node."""
        parts, timing = self._parts, self._parts.timing
        silent_since = parts.clock.now() - timing.dead_after
        if any(node.beat_at < silent_since for node in await parts.store.nodes()):
            await asyncio.sleep(2 * timing.heartbeat.total_seconds())
        await Janitor(parts.store, parts.clock, lease, timing).tick()

    async def _repeat(self, tick: Tick, until: datetime) -> int:
        """Tick until there is nothing to do at once, or the time is over."""
        ticks = 0
        while True:
            again = await tick()
            ticks += 1
            now = self._parts.clock.now()
            if again is None or again > now + timedelta(seconds=1) or now >= until:
                return ticks


async def plan_once(environment: Environment, *, within: timedelta) -> dict[str, Any]:
    """Plan up to the horizon, offer tickets, and clean up."""
    parts = (await environment.opened()).parts
    until = parts.clock.now() + within
    if environment.duties is None:
        environment.duties = PlannerDuties(parts)
    member = Membership(parts)
    async with member.joined():
        rounds = await environment.duties.round(member.lease, until=until)
    return {"planned_until": (parts.clock.now() + parts.timing.horizon).isoformat(), "rounds": rounds}


def _all_shards() -> Sequence[int]:
    return range(SHARDS)
