"""A queue in memory for tests on virtual time: as good as the port asks for, or as bad as it allows."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.errors import Unavailable
from horae.core.signals import Signal
from horae.core.tickets import Ticket
from horae.ports.queue import QueueState, QueueTraits, Taken

HIDDEN = timedelta(seconds=5)
TRAITS = QueueTraits(max_delay=None, batch=100, keeps_priority=True, keeps_order=True, carries_signals=True)


@dataclass
class Mischief:
    """What a queue does to tickets, as shares of them."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    latest: timedelta = timedelta(seconds=3)
    shuffled: bool = False


@dataclass
class _Held:
    ticket: Ticket
    at: datetime  # from when on it is shown; what wakes earlier is
    number: int


@dataclass
class MemoryQueue:
    """Tickets of all nodes of a test; `clock` tells the time, `waits` whether a take waits for the first ticket."""

    clock: Callable[[], datetime]
    waits: bool = True
    mischief: Mischief = field(default_factory=Mischief)
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    down: bool = False

    def __post_init__(self) -> None:
        self.traits = TRAITS
        self.offered = 0
        self.forgotten = 0  # how often it lost everything
        self._numbers = 0
        self._held: dict[int, _Held] = {}
        self._changed = asyncio.Event()
        self.woken: list[Callable[[], None]] = []  # called when there may be something to take
        self._heard: list[Callable[[Signal], None]] = []

    def forget(self) -> None:
        """Lose everything, as a restart does."""
        self._held.clear()
        self.forgotten += 1

    def next_at(self) -> datetime | None:
        """When the next ticket wakes, or comes back."""
        return min((max(each.ticket.wake_at, each.at) for each in self._held.values()), default=None)

    async def open(self) -> None:
        self._check()

    async def close(self) -> None:
        """Do nothing: it is shared."""

    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        self._check()
        mischief, chance = self.mischief, self.chance
        for ticket in tickets:
            self.offered += 1
            if mischief.lost and chance.random() < mischief.lost:
                continue
            known = [number for number, each in self._held.items() if each.ticket.run_id == ticket.run_id]
            if known and not mischief.doubled:
                for number in known:
                    if self._held[number].at <= now:
                        del self._held[number]  # the new one replaces it
            times = 2 if mischief.doubled and chance.random() < mischief.doubled else 1
            for _ in range(times):
                late = mischief.late and chance.random() < mischief.late
                self._add(ticket, now + chance.random() * mischief.latest if late else now)
        self._wake()

    def _add(self, ticket: Ticket, at: datetime) -> None:
        self._numbers += 1
        self._held[self._numbers] = _Held(ticket, at, self._numbers)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for woken in list(self.woken):
            woken()

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
        ahead, give_up_at = until - now, now + wait
        while True:
            self._check()
            found = self._ripe(queues, without, tasks, now, now + ahead)[:limit]
            for held in found:
                held.at = now + HIDDEN
            if found or not self.waits or now >= give_up_at:
                return [Taken(ticket=held.ticket, receipt=str(held.number)) for held in found]
            next_at = self.next_at()
            patience = give_up_at - now if next_at is None else min(give_up_at, max(next_at - ahead, now)) - now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(patience.total_seconds(), 0.001))
            now = max(self.clock(), now + timedelta(milliseconds=1))

    def _ripe(
        self, queues: Sequence[str], without: Collection[str], tasks: Sequence[str], now: datetime, until: datetime
    ) -> list[_Held]:
        found = [
            held
            for held in self._held.values()
            if (not queues or held.ticket.queue in queues)
            and held.ticket.queue not in without
            and held.ticket.task in tasks
            and held.at <= now
            and held.ticket.wake_at <= until
        ]
        if self.mischief.shuffled:
            self.chance.shuffle(found)
            return found
        return sorted(found, key=lambda held: (-held.ticket.priority, held.ticket.wake_at, held.number))

    async def done(self, taken: Sequence[Taken]) -> None:
        self._check()
        for each in taken:
            self._held.pop(int(each.receipt), None)

    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        self._check()
        for each in taken:
            if (held := self._held.get(int(each.receipt))) is not None:
                held.at = at
        self._wake()

    async def generation(self) -> str:
        self._check()
        return str(self.forgotten)

    async def state(self) -> QueueState:
        self._check()
        return QueueState(tickets=len(self._held), refused=0)

    async def send(self, signals: Sequence[Signal]) -> None:
        self._check()
        for signal in signals:
            for heard in list(self._heard):
                heard(signal)

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        self._heard.append(heard)
        return lambda: self._heard.remove(heard)

    def _check(self) -> None:
        if self.down:
            raise Unavailable("the queue is down")
