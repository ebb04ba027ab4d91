"""Fills the queue in front of the store with tickets of what comes within the horizon, and of what was lost."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from horae.core.errors import Unavailable
from horae.core.tickets import Ticket
from horae.engine.cluster.lease import Timing
from horae.metrics import TicketMetrics
from horae.ports.clock import Clock
from horae.ports.queue import Queue
from horae.ports.store import Store

log = structlog.get_logger(__name__)

PAGE = 1000  # tickets that are read and offered at once
COUNT = timedelta(seconds=10)  # between two counts of what the queue holds, for metrics
CHECK = timedelta(seconds=1)  # between two questions whether the queue has lost what it held
AHEAD = 6  # looks ahead within one horizon
LOOK = timedelta(milliseconds=100)  # between two looks at what was signalled
LOOK_BACK = timedelta(seconds=2)  # of a look: what woke earlier is left to the sweep
SWEEP = timedelta(seconds=10)  # between two sweeps
SWEEP_ON = timedelta(seconds=1)  # the same, as long as each finds others than the one before
SWEEP_REST = 20  # times what the last sweep took: the least distance to one that a signal asks for
OVERDUE = timedelta(seconds=2)  # a sweep offers what has waited so long for nobody
DEEPEST = 128  # pages of a sweep: each is twice as deep as the one before if that was not enough
DEEPEST_MOVING = 4  # the same while what it finds is claimed: under overload most of it has tickets


class Watcher:
    """The tickets of the shards of one planner; any number of watchers may offer the same.

    Whoever writes to the store offers what comes within the horizon. A watcher offers the rest: from a moving time,
    what comes within the horizon by now; a moment after a signal of the store, what nobody offered (a user's own
    transaction wrote it); now and then, what is due and held by nobody; and everything, when the queue has lost what
    it held or this planner has other shards than before.
    """

    def __init__(
        self,
        store: Store,
        queue: Queue,
        clock: Clock,
        metrics: TicketMetrics,
        *,
        timing: Timing,
        shards: Callable[[], Sequence[int]],
    ) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._timing = timing
        self._shards = shards
        self._generation: str | None = None  # of the queue, when everything was last offered; None: it has to be
        self._watched: frozenset[int] = frozenset()
        self._check_at = self._ahead_at = self._sweep_at = self._swept_at = self._looked_at = clock.now()
        self._count_at = clock.now()
        self._reached: datetime | None = None  # what wakes before was offered
        self._look_at: datetime | None = None  # something was signalled
        self._look_every = LOOK
        self._sweep_took = timedelta()  # the last one
        self._depth = 1  # pages of the next sweep
        self._first: Ticket | None = None  # of the last sweep

    def signal(self, at: datetime | None) -> datetime:
        """Note that there may be runs without tickets that wake from `at` on (None: any); returns when to look."""
        now = self._clock.now()
        if at is None:
            self._sweep_at = min(self._sweep_at, self._swept_at + max(LOOK, SWEEP_REST * self._sweep_took))
        ripe_at = now if at is None else at - self._timing.lead
        look_at = max(now, ripe_at, self._looked_at + self._look_every)
        self._look_at = look_at if self._look_at is None else min(self._look_at, look_at)
        return self._look_at

    async def tick(self) -> datetime | None:
        """Offer what should be in the queue now; returns when to look again."""
        now = self._clock.now()
        try:
            if now >= self._check_at or self._generation is None:
                await self._check(now)
            self._follow_shards()
            if now >= self._ahead_at or self._reached is None:
                await self._look_ahead(now)
            if self._look_at is not None and now >= self._look_at:
                await self._look(now)
            if now >= self._sweep_at:
                await self._sweep(now)
        except Unavailable:
            self._generation = None  # who knows what it has
            raise
        return min(filter(None, (self._look_at, self._check_at, self._sweep_at)))

    async def _check(self, now: datetime) -> None:
        """Begin again when the queue has lost what it held."""
        generation = await self._queue.generation()
        if generation != self._generation:
            log.info("queue_filled", generation=generation)
            self._generation, self._reached = generation, None
        if now >= self._count_at:
            state = await self._queue.state()
            self._metrics.queue(tickets=state.tickets, refused=state.refused)
            self._count_at = now + COUNT
        self._check_at = now + CHECK

    def _follow_shards(self) -> None:
        shards = frozenset(self._shards())
        if not shards <= self._watched:
            self._reached = None
        self._watched = shards

    async def _look_ahead(self, now: datetime) -> None:
        """Offer what has come within the horizon since the last look ahead; the first one offers what is due, too."""
        until, everything = now + self._timing.horizon, self._reached is None
        await self._offer(self._reached, until)
        self._reached, self._ahead_at = until, now + self._timing.horizon / AHEAD
        if everything:
            self._swept_at, self._sweep_at = now, now + SWEEP

    async def _look(self, now: datetime) -> None:
        """Offer what was signalled and waits all the same; under overload it has tickets, so more seldom."""
        complete, _ = await self._offer(now - LOOK_BACK, now + self._timing.lead / 2, pages=1)
        self._look_at, self._looked_at = None, now
        self._look_every = LOOK if complete else min(4 * self._look_every, SWEEP)

    async def _sweep(self, now: datetime) -> None:
        """Offer what is due and held by nobody, the oldest first: more of it each time that this was not enough."""
        complete, first = await self._offer(None, now - OVERDUE, pages=self._depth)
        self._sweep_took = self._clock.now() - now
        moved = not complete and first != self._first  # some were claimed, so that more of the same will be
        self._depth = 1 if complete else min(2 * self._depth, DEEPEST_MOVING if moved else DEEPEST)
        self._first, self._swept_at, self._sweep_at = first, now, now + (SWEEP_ON if moved else SWEEP)

    async def _offer(
        self, since: datetime | None, until: datetime, *, pages: int | None = None
    ) -> tuple[bool, Ticket | None]:
        """Offer what wakes within a time, up to some pages; returns whether that was all, and the first of it."""
        shards, cursor, first, read = sorted(self._watched), None, None, 0
        while pages is None or read < pages:
            page = await self._store.waiting(shards, since=since, until=until, cursor=cursor, limit=PAGE)
            if page.tickets:
                first = first or page.tickets[0]
                await self._queue.offer(page.tickets, now=self._clock.now())
                self._metrics.offered(len(page.tickets))
            cursor, read = page.cursor, read + 1
            if cursor is None:
                return True, first
        return False, first
