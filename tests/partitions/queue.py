"""A queue in memory for many processes of one loop: like SQS it hides what it gave for a while."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from horae.core.signals import Signal
from horae.core.tickets import Ticket
from horae.ports.queue import QueueState, QueueTraits, Taken

HIDDEN = timedelta(seconds=30)  # how long nobody else gets what was taken
TRAITS = QueueTraits(
    max_delay=timedelta(minutes=15), batch=10, keeps_priority=False, keeps_order=True, carries_signals=False
)


class QueueServer:
    """The tickets of all processes."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting: list[tuple[datetime, int, Ticket]] = []  # by the time from which they may be taken
        self._hidden: dict[str, Ticket] = {}
        self._hidden_until: list[tuple[datetime, str]] = []
        self._number = itertools.count()
        self._takers: deque[asyncio.Future[None]] = deque()  # who waits, in turn
        self._timer: asyncio.TimerHandle | None = None  # of the first ticket that cannot be taken yet
        self._wakes_at = now()
        self._lead = timedelta.max
        self.taken = 0
        self.came_back = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._hidden)

    def put(self, tickets: Sequence[Ticket], at: datetime | None = None) -> None:
        for ticket in tickets:
            heapq.heappush(self._waiting, (at or ticket.wake_at, next(self._number), ticket))
        self._wake()

    def _wake(self) -> None:
        """Wake one taker if something can be taken; it wakes the next if that is more than it takes."""
        if not self._takers or not self._waiting:
            return
        wait = (self._waiting[0][0] - self._lead - self._now()).total_seconds()
        if wait <= 0:
            while self._takers:
                taker = self._takers.popleft()
                if not taker.done():
                    taker.set_result(None)
                    return
        elif self._timer is None or self._timer.cancelled() or self._wakes_at > self._waiting[0][0]:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = self._waiting[0][0]
            self._timer = asyncio.get_running_loop().call_later(wait + 1e-6, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def pop(self, until: datetime, limit: int, tasks: Collection[str]) -> list[Taken]:
        now = self._now()
        while self._hidden_until and self._hidden_until[0][0] <= now:
            _, receipt = heapq.heappop(self._hidden_until)
            if (ticket := self._hidden.pop(receipt, None)) is not None:
                self.came_back += 1
                heapq.heappush(self._waiting, (now, next(self._number), ticket))
        found = []
        while self._waiting and len(found) < limit and self._waiting[0][0] <= until:
            _, number, ticket = heapq.heappop(self._waiting)
            receipt = f"{number}/{self.taken}"
            self.taken += 1
            self._hidden[receipt] = ticket
            heapq.heappush(self._hidden_until, (now + HIDDEN, receipt))
            found.append(Taken(ticket=ticket, receipt=receipt))
        self._wake()
        return found

    def delete(self, receipts: Collection[str]) -> None:
        for receipt in receipts:
            self._hidden.pop(receipt, None)

    def return_ticket(self, receipt: str, at: datetime) -> None:
        if (ticket := self._hidden.pop(receipt, None)) is not None:
            self.put([ticket], at)

    async def changed(self, seconds: float, lead: timedelta) -> None:
        """Wait until there may be something to take, or for so long."""
        self._lead = min(self._lead, lead)  # of all: who looks further ahead waits a little longer
        taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._wake()
        try:
            await asyncio.wait([taker], timeout=seconds)
        finally:
            taker.cancel()


class MemoryQueue:
    """The queue as one process sees it; each call takes the latency."""

    traits = TRAITS

    def __init__(self, server: QueueServer, *, latency: float) -> None:
        self._server = server
        self._latency = latency

    async def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        await asyncio.sleep(self._latency)
        self._server.put(tickets)

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
        await asyncio.sleep(self._latency / 2)
        lead, loop = until - now, asyncio.get_running_loop()
        give_up_at = loop.time() + wait.total_seconds()
        while not (found := self._server.pop(now + lead, limit, tasks)):
            left = give_up_at - loop.time()
            if left < 1e-4:
                break
            await self._server.changed(left, lead)
            now = self._server._now()
        await asyncio.sleep(self._latency / 2)
        return found

    async def done(self, taken: Sequence[Taken]) -> None:
        await asyncio.sleep(self._latency)
        self._server.delete([each.receipt for each in taken])

    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        await asyncio.sleep(self._latency)
        for each in taken:
            self._server.return_ticket(each.receipt, at)

    async def generation(self) -> str:
        return "first"

    async def state(self) -> QueueState:
        return QueueState(tickets=len(self._server), refused=0)

    async def send(self, signals: Sequence[Signal]) -> None:
        """Do nothing: this queue carries no signals."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        return lambda: None
