"""Queues as those who run them see them: how much waits, how late it gets, and what they say about them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from horae.core.effects import set_queue
from horae.core.records import SETTINGS, QueueSettings
from horae.core.values import replace
from horae.jobs.lookup import queue_settings
from horae.jobs.optimistic import TRIES, always_changing
from horae.ports.clock import Clock
from horae.ports.reader import QueueDepth
from horae.ports.store import Store

RECENT = timedelta(minutes=5)  # of which runs the lateness is told: what an autoscaler can still act on


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """One queue at a glance."""

    queue: str
    depth: int  # due and not started, counted up to 10,000
    oldest_age: timedelta | None  # of what is due and not started
    running: int
    lateness_p99: timedelta | None  # of runs that ended lately
    paused: bool
    concurrency: int | None


class Queues:
    """Looks at queues, and takes what administrators say about them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, *, owner: str | None) -> Sequence[QueueFigures]:
        """The queues that have something to tell, by name; with an owner, of that owner's runs alone."""
        now = self._clock.now()
        depths = await self._store.queues(now=now, owner=owner)
        lateness = await self._store.queue_lateness(since=now - RECENT, owner=owner)
        known = {depth.queue: depth for depth in depths}
        quiet = {queue: _empty(await queue_settings(self._store, queue)) for queue in lateness if queue not in known}
        return [self._figures(depth, lateness) for _, depth in sorted((known | quiet).items())]

    async def set(self, settings: QueueSettings, *, fields: Collection[str] = SETTINGS) -> QueueFigures:
        """Say something about a queue, whether or not it has runs; fields that are not named stay as they are."""
        for _ in range(TRIES):
            before = await queue_settings(self._store, settings.queue)
            after = replace(before, **{name: getattr(settings, name) for name in fields})
            [refusal] = await self._store.apply([set_queue(before, after)])
            if refusal is None:
                break
        else:
            raise always_changing(f"the queue {settings.queue!r}")
        figures = {one.queue: one for one in await self.list(owner=None)}
        if settings.queue in figures:
            return figures[settings.queue]
        return self._figures(_empty(await queue_settings(self._store, settings.queue)), {})

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
