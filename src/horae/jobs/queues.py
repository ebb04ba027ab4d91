"""Queues for operators: depth, lateness, and settings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from horae.core.effects import set_queue
from horae.core.records import SETTINGS, QueueSettings
from horae.core.values import replace
from horae.jobs.optimistic import TRIES, always_changing
from horae.lookup import queue_settings
from horae.ports.clock import Clock
from horae.ports.reader import MAX_QUEUES, Listing, QueueDepth
from horae.ports.store import Store

MOST_QUEUES = 5 * MAX_QUEUES  # of which metrics are taken
RECENT = timedelta(minutes=5)  # the window of the lateness figure, short enough for an autoscaler to act on


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """The figures and settings of one queue."""

    queue: str
    depth: int  # runs that are due and not started, counted up to 10,000
    oldest_age: timedelta | None  # of the runs that are due and not started
    running: int
    lateness_p99: timedelta | None  # of runs that ended within RECENT
    paused: bool
    concurrency: int | None


class Queues:
    """Reads the figures of queues, and writes their settings."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, *, owner: str | None, after: str = "", limit: int = MAX_QUEUES) -> Listing[QueueFigures]:
        """Return the first queues after a name with runs or settings; with an owner, only for that owner's runs.

        The cursor is the name of the last one.
        """
        now = self._clock.now()
        depths = await self._store.queues(now=now, owner=owner, after=after, limit=limit)
        last = depths[-1].queue if len(depths) == limit else None
        lateness = await self._store.queue_lateness(since=now - RECENT, owner=owner, after=after, until=last)
        known = {depth.queue: depth for depth in depths}
        known |= await self._quiet(sorted(lateness.keys() - known.keys())[:limit])
        names = sorted(known)
        more = len(names) > limit or last is not None
        return Listing(
            items=[self._figures(known[name], lateness) for name in names[:limit]],
            cursor=names[:limit][-1] if more else None,
        )

    async def _quiet(self, queues: Sequence[str]) -> dict[str, QueueDepth]:
        """Queues in which nothing is left of what ran lately; their settings take one read, however many they are."""
        settings = {each.queue: each for each in await self._store.records(QueueSettings)} if queues else {}
        return {queue: _empty(settings.get(queue) or QueueSettings(queue=queue)) for queue in queues}

    async def depths(self) -> Sequence[QueueDepth]:
        """Return the depths of the first queues by name, enough for metrics."""
        now = self._clock.now()
        found = await self._store.queues(now=now)
        while len(found) % MAX_QUEUES == 0 and 0 < len(found) < MOST_QUEUES:
            following = await self._store.queues(now=now, after=found[-1].queue)
            if not following:
                break
            found += following
        return found

    async def set(self, settings: QueueSettings, *, fields: Collection[str] = SETTINGS) -> QueueFigures:
        """Write those settings of a queue that `fields` names, whether or not it has runs."""
        for _ in range(TRIES):
            before = await queue_settings(self._store, settings.queue)
            after = replace(before, **{name: getattr(settings, name) for name in fields})
            [refusal] = await self._store.apply([set_queue(before, after)])
            if refusal is None:
                break
        else:
            raise always_changing(f"the queue {settings.queue!r}")
        return await self._of(settings.queue)

    async def _of(self, queue: str) -> QueueFigures:
        now = self._clock.now()
        depths = await self._store.queues(now=now, queue=queue)
        depth = depths[0] if depths else _empty(await queue_settings(self._store, queue))
        lateness = await self._store.queue_lateness(since=now - RECENT, until=queue)
        return self._figures(depth, lateness)

    def _figures(self, depth: QueueDepth, lateness: Mapping[str, timedelta]) -> QueueFigures:
        oldest = depth.oldest_due_at
        return QueueFigures(
            queue=depth.queue,
            depth=depth.depth,
            oldest_age=None if oldest is None else max(self._clock.now() - oldest, timedelta()),
            running=depth.running,
            lateness_p99=lateness.get(depth.queue),
            paused=depth.paused,
            concurrency=depth.concurrency,
        )


def _empty(settings: QueueSettings) -> QueueDepth:
    return QueueDepth(
        queue=settings.queue,
        depth=0,
        oldest_due_at=None,
        running=0,
        paused=settings.paused,
        concurrency=settings.concurrency,
    )
