"""The messages of one event as a queue that a worker takes from."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from horae.core.signals import Signal
from horae.core.tickets import Ticket
from horae.ports.queue import Queue, QueueState, QueueTraits, Taken

EARLY = timedelta(
    seconds=5
)  # a ticket that wakes later than the lead and this comes again, rather than to be waited for
LEAST_HIDDEN = timedelta(seconds=1)  # for what comes again: each time costs an invocation


class EventQueue:
    """Tickets of one event, each of which is done or must come again."""

    traits = QueueTraits(
        max_delay=timedelta(), batch=10, keeps_priority=False, keeps_order=False, carries_signals=False
    )

    def __init__(self, queue: Queue, received: Sequence[Taken], *, now: datetime, lead: timedelta) -> None:
        """`queue` has sent the tickets, and hides those that must come again."""
        self._queue = queue
        self._open = {each.receipt: each for each in received}  # neither done nor to come again
        self._untaken = dict(self._open)
        self._returned: list[Taken] = []
        self.again: dict[str, datetime] = {}  # receipts of what must come again, and when
        for each in received:
            if each.ticket.wake_at > now + lead + EARLY:
                self._return(each, each.ticket.wake_at - lead)

    @property
    def is_empty(self) -> bool:
        """Whether every ticket is done, or must come again."""
        return not self._open

    async def open(self) -> None:
        """Do nothing: the queue behind is open."""

    async def close(self) -> None:
        """Do nothing."""

    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        """Pass tickets on to the queue behind."""
        await self._queue.offer(tickets, now=now)

    async def take(
        self,
        *,
        queues: Sequence[str],
        without: Collection[str],
        tasks: Sequence[str],
        now: datetime,
        until: datetime,
        limit: int,
        wait: timedelta,
    ) -> list[Taken]:
        """Take tickets of the event that wake up to `until`; waits for the next, but not longer than `wait`."""
        ready = [each for each in self._untaken.values() if each.ticket.wake_at <= until][:limit]
        for each in ready:
            del self._untaken[each.receipt]
        if not ready:
            next_at = min((each.ticket.wake_at for each in self._untaken.values()), default=until + wait)
            await asyncio.sleep(min(next_at - until, wait).total_seconds())
        return ready

    async def done(self, taken: Sequence[Taken]) -> None:
        """Note that Lambda may delete messages."""
        for each in taken:
            self._open.pop(each.receipt, None)

    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        """Note that messages must come again from `at` on."""
        for each in taken:
            self._return(each, at)

    def return_all(self, now: datetime) -> None:
        """Note that everything must come again that is not done."""
        for each in list(self._open.values()):
            self._return(each, now)

    async def hide_returned(self, now: datetime) -> None:
        """Hide messages that must come again until their time; else they would hide as long as a function may take."""
        received, again = self._returned, self.again
        for at in sorted(set(again.values())):
            taken = [each for each in received if again[each.receipt] == at]
            await self._queue.give_back(taken, now=now, at=max(at, now + LEAST_HIDDEN))

    async def generation(self) -> str:
        """Return always the same."""
        return ""

    async def state(self) -> QueueState:
        """Return how many tickets are not done."""
        return QueueState(tickets=len(self._open), refused=0)

    async def send(self, signals: Sequence[Signal]) -> None:
        """Deliver nothing."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Hear nothing."""
        return lambda: None

    def _return(self, taken: Taken, at: datetime) -> None:
        if self._open.pop(taken.receipt, None) is not None:
            self._untaken.pop(taken.receipt, None)
            self._returned.append(taken)
            self.again[taken.receipt] = at
