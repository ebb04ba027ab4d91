"""Takes tickets from a queue in front of the store, and keeps them until their runs are claimed or void."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.errors import Unavailable
from horae.core.model import RunId
from horae.metrics import TicketMetrics
from horae.ports.clock import Clock
from horae.ports.queue import Queue, Taken
from horae.ports.store import Claims

WAIT = timedelta(seconds=1)  # for the first ticket, in one call
FIRST_DELAY = timedelta(milliseconds=50)  # before a run is tried again that could not be claimed
LONGEST_DELAY = timedelta(seconds=1)  # the same, after several times
KEPT = timedelta(seconds=5)  # how long such a ticket is kept, and how long nobody takes it then
KEPT_OF_QUEUE = 100  # such tickets of one queue; beyond it none of it are taken
FOREIGN_DELAY = 0.2  # seconds, about, that others have to take a ticket of a task that is not known here


@dataclass(slots=True)
class _Kept:
    """The tickets of one run: more than one when it was doubled."""

    taken: list[Taken]
    since: datetime
    try_at: datetime
    delay: timedelta = field(default=FIRST_DELAY)
    tried: bool = False


class Tickets:
    """The tickets that this worker has taken and not yet brought to an end.

    A claim by their ids decides about each: claimed or void, it is done. What cannot be claimed yet (its queue is full
    or paused, its gate is another's) is kept and tried again, at the latest at its instant; too many are given back.
    """

    def __init__(
        self,
        queue: Queue,
        clock: Clock,
        metrics: TicketMetrics,
        *,
        lead: timedelta,
        queues: Sequence[str],
        tasks: Sequence[str],
        taken: Callable[[], None],
    ) -> None:
        """`taken` is called when there is something to claim, and when claims have to do without the queue."""
        self.healthy = False  # whether the queue answered when it was last asked; if not, claims look into the store
        self.urgent = False  # whether the last take brought something that wakes within half of the lead
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._lead = lead
        self._queues = queues
        self._tasks = frozenset(tasks)
        self._taken = taken
        self._kept: dict[RunId, _Kept] = {}
        self._done: list[Taken] = []  # for the queue to delete
        self._returned: list[Taken] = []  # for the queue to give to others
        self._finishing: asyncio.Task[None] | None = None
        self._stuck: Counter[str] = Counter()  # tickets by queue that could not be claimed at once
        metrics.watch_held(lambda: len(self._kept))

    def __contains__(self, run_id: RunId) -> bool:
        return run_id in self._kept

    # --- taking

    async def take(self, limit: int) -> int:
        """Take up to `limit` tickets, and return how many; raises Unavailable when the queue does not answer."""
        now = self._clock.now()
        try:
            taken = await self._queue.take(
                queues=self._queues,
                without=[queue for queue, count in self._stuck.items() if count >= KEPT_OF_QUEUE],
                tasks=sorted(self._tasks),
                now=now,
                until=now + self._lead,
                limit=limit,
                wait=WAIT if self.healthy else timedelta(),  # claims wait to hear that it answers
            )
        except Unavailable:
            self._do_without()
            raise
        self.healthy = True
        soon = now + self._lead / 2
        self.urgent = any(each.ticket.wake_at < soon for each in taken)
        self._metrics.taken(len(taken))
        foreign = [each for each in taken if each.ticket.task not in self._tasks]
        if foreign:
            await self._give_back(foreign, timedelta(seconds=random.uniform(0.5, 1.5) * FOREIGN_DELAY))
        if len(taken) > len(foreign):
            self._keep_new(each for each in taken if each.ticket.task in self._tasks)
            self._taken()
        return len(taken)

    def _keep_new(self, taken: Iterable[Taken]) -> None:
        now = self._clock.now()
        for each in taken:
            kept = self._kept.setdefault(each.ticket.run_id, _Kept([], now, now))
            kept.taken.append(each)
            kept.try_at = min(kept.try_at, now)

    def _do_without(self) -> None:
        """Do without the queue: what was taken comes back by itself, and claims find it in the store."""
        self.healthy = False
        self._kept.clear()
        self._stuck.clear()
        self._taken()

    # --- claiming

    def ripe(self, now: datetime, limit: int) -> list[RunId]:
        """Return the runs to claim now, at most so many."""
        found: list[RunId] = []
        for run_id, kept in self._kept.items():
            if len(found) >= limit:
                break
            if kept.try_at <= now:
                found.append(run_id)
        return found

    @property
    def untried(self) -> int:
        """Tickets that no claim has looked at yet."""
        return len(self._kept) - self._stuck.total()

    def next_at(self) -> datetime | None:
        """Return when to claim again; None when there is no ticket."""
        return min((kept.try_at for kept in self._kept.values()), default=None)

    def try_soon(self, queues: Collection[str], *, gated: bool) -> bool:
        """Try again what waits for room in these queues, or for gates; returns whether there is something."""
        if not self._stuck:
            return False
        now, found = self._clock.now(), False
        for kept in self._kept.values():
            if kept.tried and (gated or kept.taken[0].ticket.queue in queues):
                kept.try_at, kept.delay, found = now, FIRST_DELAY, True
        return found

    def answered(self, asked: Iterable[RunId], claims: Claims, *, undecided: bool) -> None:
        """Learn what a claim of some runs has brought: finish tickets, keep them, or give them back."""
        now = self._clock.now()
        waiting = dict(claims.waiting)
        if undecided:
            waiting |= {item.run.id: now for item in claims.contested}
        done: list[Taken] = []
        returned: list[Taken] = []
        for run_id in asked:
            if (kept := self._kept.get(run_id)) is None:
                continue
            wake_at = waiting.get(run_id)
            if wake_at is None or wake_at > now + self._lead:  # a run that was put off was offered again
                done += self._drop(run_id)
            elif not self._keep(kept, wake_at, now):
                returned += self._drop(run_id)
        self._metrics.claimed(len(claims.runs))
        self._metrics.void(max(len(done) - len(claims.runs), 0))
        self._done += done
        self._returned += returned
        if self._finishing is None and (done or returned):
            self._finishing = asyncio.create_task(self._finish(), name="finish tickets")

    async def _finish(self) -> None:
        """Tell the queue what became of tickets, while the next claim is under way."""
        try:
            while self._done or self._returned:
                done, self._done = self._done, []
                returned, self._returned = self._returned, []
                await self._queue.done(done)
                if returned:
                    await self._give_back(returned, KEPT)
        except Unavailable:
            self._do_without()
        finally:
            self._finishing = None

    def _keep(self, kept: _Kept, wake_at: datetime, now: datetime) -> bool:
        """Keep a ticket for another try, unless it was kept for long or there are too many of its queue."""
        queue = kept.taken[0].ticket.queue
        if not kept.tried:
            if self._stuck[queue] >= 2 * KEPT_OF_QUEUE:
                return False
            kept.tried = True
            self._stuck[queue] += 1
        if now - kept.since > self._lead + KEPT:
            return False
        kept.try_at = now + kept.delay
        if now < wake_at:  # at its instant it may be contested, and is decided
            kept.try_at = min(kept.try_at, wake_at)
        kept.delay = min(2 * kept.delay, LONGEST_DELAY)
        return True

    def _drop(self, run_id: RunId) -> list[Taken]:
        kept = self._kept.pop(run_id)
        if kept.tried:
            queue = kept.taken[0].ticket.queue
            self._stuck[queue] -= 1
            if not self._stuck[queue]:
                del self._stuck[queue]
        return kept.taken

    # --- leaving

    async def leave(self) -> None:
        """Give everything back, because this worker claims no more."""
        await self.leave_finished()
        taken = [each for kept in self._kept.values() for each in kept.taken]
        self._kept.clear()
        self._stuck.clear()
        if taken:
            await self._give_back(taken, timedelta())

    async def leave_finished(self) -> None:
        """Wait until the queue knows of what was finished."""
        if self._finishing is not None:
            await self._finishing

    async def _give_back(self, taken: Sequence[Taken], after: timedelta) -> None:
        now = self._clock.now()
        await self._queue.give_back(taken, now=now, at=now + after)
        self._metrics.returned(len(taken))
