"""Tickets that were received and wait for a taker, or for their time; in the order in which they are taken."""

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import zip_longest

from horae.core.tickets import Ticket
from horae.core.values import Value
from horae.queues.sqs.lines import TicketLine


class Received(Value, frozen=True, kw_only=True):
    """A message with a ticket, hidden from others for a while."""

    ticket: Ticket
    line: TicketLine
    handle: str
    until: float  # by the monotonic clock: others may get it from then on


class Buffer:
    """Tickets in hand; higher classes first, then owners in turns, then by time."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._held: list[Received] = []

    def __len__(self) -> int:
        return len(self._held)

    def add(self, received: Iterable[Received]) -> None:
        """Keep tickets."""
        self._held += received

    def take(self, until: datetime, limit: int) -> list[Received]:
        """Take tickets that wake up to `until`; those that expired are forgotten."""
        now = self._elapsed()
        self._held = [each for each in self._held if each.until > now]
        ready = [each for each in self._held if each.ticket.wake_at <= until]
        if len(ready) > limit:
            ready = _in_turns(ready)[:limit]
        self._remove(ready)
        return ready

    def take_unless(self, wanted: Callable[[Received], bool]) -> list[Received]:
        """Take what is not wanted and others cannot get yet."""
        now = self._elapsed()
        unwanted = [each for each in self._held if not wanted(each)]
        self._remove(unwanted)
        return [each for each in unwanted if each.until > now]

    def next_at(self) -> datetime | None:
        """Return when the first ticket wakes."""
        return min((each.ticket.wake_at for each in self._held), default=None)

    def _remove(self, received: Iterable[Received]) -> None:
        gone = {id(each) for each in received}
        self._held = [each for each in self._held if id(each) not in gone]


def _in_turns(received: Iterable[Received]) -> list[Received]:
    """Put classes one after another, and within a class the first ticket of each owner before the second of any."""
    classes: dict[int, dict[str, list[Received]]] = {}
    for each in sorted(received, key=lambda each: each.ticket.wake_at):
        classes.setdefault(each.line.level, {}).setdefault(each.ticket.owner, []).append(each)
    return [
        each
        for _, owners in sorted(classes.items())
        for turn in zip_longest(*owners.values())
        for each in turn
        if each is not None
    ]
