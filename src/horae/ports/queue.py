"""The queue port: tickets of what wakes soon, between those who create runs and those who claim them.

The store stays the only truth. Tickets may be lost, doubled, late or early: a claim by ids follows each of them, and a
slow sweep offers again what is due and held by nobody.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.signals import Signal
from horae.core.tickets import Ticket
from horae.core.values import Value


class QueueTraits(Value, frozen=True, kw_only=True):
    """What a queue can do."""

    max_delay: timedelta | None  # how long it can keep a ticket back; None: any time
    batch: int  # tickets in one call of its backend
    keeps_priority: bool  # tickets of a higher priority are taken first
    keeps_order: bool  # tickets of one priority are taken by their time
    carries_signals: bool  # it delivers signals between processes, so that nobody polls for them


class Taken(Value, frozen=True, kw_only=True):
    """A ticket that this process has taken; nobody else gets it until its time to hide is over."""

    ticket: Ticket
    receipt: str  # only the queue can read it


class QueueState(Value, frozen=True, kw_only=True):
    """What a queue tells of itself."""

    tickets: int  # about how many it holds, those that somebody has taken included
    refused: int  # that were taken too often and set aside


class Queue(Protocol):
    """Tickets by time; every verb takes a batch."""

    @property
    def traits(self) -> QueueTraits:
        """What this queue can do."""

    async def open(self) -> None:
        """Connect; raises `Unavailable` when the backend does not answer, and each verb connects again later."""

    async def close(self) -> None:
        """Close every connection."""

    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        """Hold tickets until their runs wake; a second ticket of a run replaces the first, or is a double."""

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
        """Take tickets that wake up to `until`, of these queues or (empty) any; waits up to `wait` for the first.

        None of the queues `without`. A queue that can tell leaves those of other tasks to others. What is neither done
        nor given back comes again. A take that is cancelled keeps nothing: what it took is given back.
        """

    async def done(self, taken: Sequence[Taken]) -> None:
        """Delete tickets whose runs were claimed, or are not to be claimed any more."""

    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        """Let others take the tickets from `at` on, however early they wake."""

    async def generation(self) -> str:
        """Return what changes when the queue may have lost what it held; always the same where that cannot happen."""

    async def state(self) -> QueueState:
        """Return what `doctor` and metrics report."""

    async def send(self, signals: Sequence[Signal]) -> None:
        """Deliver signals to all processes, if the queue carries them; they may be lost."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `heard` (on the event loop) for every signal; returns a function that stops it."""
