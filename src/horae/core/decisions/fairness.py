"""Fairness of claims: how many runs each lane gives, so that no queue and no owner can crowd out the others."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

from horae.core.values import Value

_NEVER = datetime.max.replace(tzinfo=UTC)
MAX_LANES = 200  # that one claim looks into
MANY_LANES = 500  # due lanes that a claim chooses these from; if there are more, it chooses from a few of each owner
LANES_OF_OWNER = 50  # how many these few are
PLENTY = 10  # runs that are counted in every lane, however many lanes there are

K = TypeVar("K", bound=Hashable)


class Lane(Value, frozen=True):
    """Runs in the order of their wake-up time: those of a queue, a priority and an owner."""

    queue: str
    priority: int
    owner: str


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

    def take(self, queue: str, count: int = 1) -> None:
        """Count runs that the claim takes."""
        if queue in self.left:
            self.left[queue] -= count


def part_of_lane(lanes: int, limit: int) -> int:
    """How far the runs of each lane need to be counted to share out `limit` of them."""
    return max(-(-limit // max(lanes, 1)) * 4, PLENTY) if lanes > 1 else limit


def share_out(offers: Sequence[Offer], limit: int, *, part: int) -> dict[Lane, int]:
    """How many of `limit` runs each lane gives.

    Higher priorities come first. Within a priority the owners take turns, and within an owner its queues, so that a
    flood of one owner, in one queue or in many, gets no more than what the others leave. The one that waits longest is
    first in a turn. `part` is how far the lanes were counted: one with that many runs counts as unlimited.
    """
    shares = dict.fromkeys((offer.lane for offer in offers), 0)
    rooms = Rooms({offer.lane.queue: offer.room for offer in offers if offer.room is not None})
    for _, same_priority in groupby(sorted(offers, key=_place), key=lambda offer: offer.lane.priority):
        wants = {offer.lane: offer.count if offer.count < part else limit for offer in same_priority}
        while given := _turn(wants, rooms.left, limit):  # again if an owner leaves room that another one can use
            for lane, share in given.items():
                shares[lane] += share
                wants[lane] -= share
                rooms.take(lane.queue, share)
            limit -= sum(given.values())
    return {lane: share for lane, share in shares.items() if share > 0}


def _place(offer: Offer) -> tuple[Any, ...]:
    """The order of lanes: by priority, then the one that waits longest."""
    lane = offer.lane
    return -lane.priority, offer.first_at or _NEVER, lane.owner, lane.queue


def _turn(wants: Mapping[Lane, int], rooms: Mapping[str, int], limit: int) -> dict[Lane, int]:
    """Share `limit` among the owners of lanes, and what each owner gets among its lanes."""
    most = dict(wants)
    for queue, room in rooms.items():
        most |= _in_turn({lane: want for lane, want in wants.items() if lane.queue == queue}, room)
    by_owner: defaultdict[str, dict[Lane, int]] = defaultdict(dict)
    for lane, want in most.items():
        by_owner[lane.owner][lane] = want
    given = _in_turn({owner: sum(lanes.values()) for owner, lanes in by_owner.items()}, limit)
    shared = [_in_turn(lanes, given[owner]) for owner, lanes in by_owner.items()]
    return {lane: share for lanes in shared for lane, share in lanes.items() if share > 0}


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
