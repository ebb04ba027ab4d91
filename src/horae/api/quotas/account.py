"""Accounts: what one owner keeps, as this node knows it: counted in the store, accepted since, and in progress."""

import asyncio
import math
from dataclasses import dataclass, field
from datetime import datetime

from horae.core.decisions.quotas import NOTHING, Amount
from horae.ports.reader import Kept


@dataclass(slots=True)
class Sums:
    """Numbers that grow and shrink; queues are noted apart, because names cannot be subtracted."""

    waiting: int = 0
    recurring: int = 0
    stored_bytes: int = 0

    def add(self, amount: "Amount | Sums") -> None:
        self.waiting += amount.waiting
        self.recurring += amount.recurring
        self.stored_bytes += amount.stored_bytes

    def subtract(self, amount: Amount) -> None:
        self.waiting -= amount.waiting
        self.recurring -= amount.recurring
        self.stored_bytes -= amount.stored_bytes


@dataclass(slots=True)
class Figure:
    """Parts that are counted together, now and then; what was accepted meanwhile is added."""

    parts: tuple[Kept, ...]
    sums: Sums = field(default_factory=Sums)
    queues: set[str] = field(default_factory=set)
    new: Sums = field(default_factory=Sums)  # of the sums, what was accepted after the count in progress began
    new_queues: set[str] = field(default_factory=set)
    counted_at: datetime | None = None  # when the last count began that was completed
    began_at: datetime | None = None  # when the last count began
    tried_at: float = -math.inf  # the same, on the clock of this machine
    seconds: float = 0.0  # that the last one took
    counting: "asyncio.Task[None] | None" = None

    def add(self, amount: Amount) -> None:
        """Add what was accepted."""
        self.sums.add(amount)
        self.new.add(amount)

    def note_queues(self, queues: frozenset[str]) -> None:
        """Note queues that are used from now on."""
        self.queues |= queues
        self.new_queues |= queues

    def begin(self, now: datetime, elapsed: float) -> None:
        """Begin a count: from now on what is accepted may or may not be in it, and is added to it."""
        self.new, self.new_queues = Sums(), set()
        self.began_at, self.tried_at = now, elapsed

    def end(self, counted: Sums, queues: set[str], *, seconds: float) -> None:
        """Replace the sums by what was counted, and what was accepted since the count began."""
        counted.add(self.new)
        self.sums, self.queues = counted, queues | self.new_queues
        self.counted_at, self.seconds = self.began_at, seconds


@dataclass(slots=True)
class Account:
    """What one owner keeps; `pending` is what requests in progress may add."""

    owner: str
    jobs: Figure = field(default_factory=lambda: Figure((Kept.JOBS, Kept.LIVE)))
    bytes: Figure = field(default_factory=lambda: Figure((Kept.JOBS, Kept.LIVE, Kept.ENDED)))
    pending: Sums = field(default_factory=Sums)
    requests: int = 0  # in progress

    @property
    def waiting(self) -> int:
        return self.jobs.sums.waiting + self.pending.waiting

    @property
    def recurring(self) -> int:
        return self.jobs.sums.recurring + self.pending.recurring

    @property
    def queues(self) -> set[str]:
        return self.jobs.queues

    @property
    def stored_bytes(self) -> int:
        return self.bytes.sums.stored_bytes + self.pending.stored_bytes

    @property
    def idle(self) -> bool:
        """Whether nothing is in progress, so that it can be forgotten."""
        return self.requests == 0 and self.jobs.counting is None and self.bytes.counting is None

    def reserve(self, wanted: Amount) -> None:
        """Count what a request may add."""
        self.requests += 1
        self.pending.add(wanted)
        self.jobs.note_queues(wanted.queues)

    def settle(self, wanted: Amount, added: Amount = NOTHING) -> None:
        """Count what a request did add instead."""
        self.requests -= 1
        self.pending.subtract(wanted)
        self.jobs.add(added)
        self.bytes.add(added)
