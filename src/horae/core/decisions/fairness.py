"""Fairness of claims: how many runs each lane gives, so that no queue and no owner can crowd out the others."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from horae.core.values import Value

PLENTY = 10  # runs that are counted in every lane, however many lanes there are

K = TypeVar("K", bound=Hashable)


class Lane(Value, frozen=True):
    """Runs in the order of their wake-up time: those of a queue, a priority and a band of owners."""

    queue: str
    priority: int
    band: int


class Offer(Value, frozen=True):
    """The runs of a lane that can be claimed now."""

    lane: Lane
    count: int  # as far as counted, see `part_of_lane`
    first_at: datetime | None = None  # when its first run woke
    room: int | None = None  # how many more runs nodes may hold of its queue; None: any number


class Rooms:
    """How many more runs of each limited queue nodes may hold, while a claim takes some of them."""

    def __init__(self, left: Mapping[str, int]) -> None:
        self.left = dict(left)  # queues without a limit are not in it

    def is_full(self, queue: str) -> bool:
        """Whether no more runs of a queue may be taken."""
        return self.left.get(queue, 1) <= 0

    def take(self, queue: str) -> None:
        """Count a run that the claim takes."""
        if queue in self.left:
            self.left[queue] -= 1


def part_of_lane(lanes: int, limit: int) -> int:
    """How far the runs of each lane need to be counted to share out `limit` of them."""
    return max(-(-limit // max(lanes, 1)) * 4, PLENTY) if lanes > 1 else limit


def share_out(offers: Sequence[Offer], limit: int, *, part: int) -> dict[Lane, int]:
    """How many of `limit` runs each lane gives.

    Higher priorities come first. Within a priority the queues take turns, and within a queue its lanes, so that a flood
    in one of them gets no more than what the others leave. The one that waits longest is first in a turn. `part` is how
    far the lanes were counted: one with that many runs counts as unlimited.
    """
    shares: dict[Lane, int] = {}
    rooms = {offer.lane.queue: offer.room for offer in offers if offer.room is not None}
    by_priority = sorted(offers, key=lambda offer: (-offer.lane.priority, offer.lane.queue, offer.lane.band))
    for _, same_priority in groupby(by_priority, key=lambda offer: offer.lane.priority):
        by_queue = {queue: list(lanes) for queue, lanes in groupby(same_priority, key=lambda offer: offer.lane.queue)}
        wants = {
            queue: min(sum(_most(offer, part, limit) for offer in lanes), limit, rooms.get(queue, limit))
            for queue, lanes in by_queue.items()
        }
        given = _in_turn(
            {queue: wants[queue] for queue in sorted(wants, key=lambda queue: _first(by_queue[queue]))}, limit
        )
        for queue, lanes in by_queue.items():
            lanes.sort(key=lambda offer: _first([offer]))
            shares |= _in_turn({offer.lane: _most(offer, part, limit) for offer in lanes}, given[queue])
            if queue in rooms:
                rooms[queue] -= given[queue]
        limit -= sum(given.values())
    return {lane: share for lane, share in shares.items() if share > 0}


def _most(offer: Offer, part: int, limit: int) -> int:
    """The most that a lane can give; one that was not counted to its end counts as unlimited."""
    return offer.count if offer.count < part else limit


def _first(offers: Sequence[Offer]) -> tuple[bool, datetime | None]:
    times = [offer.first_at for offer in offers if offer.first_at is not None]
    return not times, min(times, default=None)


def _in_turn(wants: dict[K, int], limit: int) -> dict[K, int]:
    """Share `limit` as if each in turn got one until all are satisfied, without going through single turns."""
    given = dict.fromkeys(wants, 0)
    left = min(limit, sum(wants.values()))
    hungry = list(wants)
    while left > 0:
        hungry = [key for key in hungry if given[key] < wants[key]]
        each = left // len(hungry)
        if each == 0:
            for key in hungry[:left]:
                given[key] += 1
            return given
        for key in hungry:
            more = min(each, wants[key] - given[key])
            given[key] += more
            left -= more
    return given
