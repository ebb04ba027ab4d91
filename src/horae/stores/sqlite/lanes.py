"""Lanes in SQLite: each knows when its first run wakes, so that claims read only lanes with something due."""

import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec.structs import asdict

from horae.core.decisions.fairness import LANES_OF_OWNER, MANY_LANES, MAX_LANES, Lane
from horae.core.model import Run
from horae.stores.sqlite.codecs import Values, maybe_time, to_json, to_micros
from horae.stores.sqlite.database import STATEMENTS


class FirstWakes:
    """When the first of some waiting runs wakes in each lane."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int, str], datetime] = {}

    def add(self, similar: Sequence[Run]) -> None:
        """Note runs of one lane; paused ones do not wake."""
        run = similar[0]
        if not run.paused:
            lane = (run.spec.queue, run.spec.priority, run.owner)
            wake_at = min([run.wake_at for run in similar])
            self._first[lane] = min(self._first.get(lane, wake_at), wake_at)

    def values(self) -> list[Values]:
        """The values of wake_lanes."""
        return [(*lane, to_micros(wake_at)) for lane, wake_at in self._first.items()]


def wakes(runs: Iterable[Run]) -> list[Values]:
    """The lanes of waiting runs, each with the time when the first of them wakes."""
    first = FirstWakes()
    for run in runs:
        first.add([run])
    return first.values()


def wake(db: sqlite3.Connection, woken: Iterable[Values]) -> None:
    """Note when the first runs of lanes wake, unless others wake before them."""
    db.executemany(STATEMENTS["wake_lanes"], woken)


def due(db: sqlite3.Connection, until: datetime, queues: Sequence[str]) -> tuple[list[Lane], bool]:
    """The lanes that may have something to claim, the highest priority first, and whether there are more of them."""
    which = {"until": to_micros(until), "queues": to_json(queues), "limit": MAX_LANES + 1}
    [count] = db.execute(STATEMENTS["count_due_lanes"], {**which, "limit": MANY_LANES + 1}).fetchone()
    if count > MANY_LANES:
        return _of_each_owner(db, which), True
    found = [Lane(*row) for row in db.execute(STATEMENTS["due_lanes"], which)]
    return found[:MAX_LANES], len(found) > MAX_LANES


def _of_each_owner(db: sqlite3.Connection, which: Mapping[str, Any]) -> list[Lane]:
    """Some due lanes of each owner, without a look at the others."""
    owners = [owner for (owner,) in db.execute(STATEMENTS["owners_of_due_lanes"], which)]
    chosen = random.sample(owners, min(len(owners), MAX_LANES))
    each = {**which, "limit": max(min(MAX_LANES // len(chosen), LANES_OF_OWNER) // 2, 1)}
    rows = (db.execute(STATEMENTS["due_lanes_of_owner"], {**each, "owner": owner}) for owner in chosen)
    return sorted((Lane(*row) for row in chain.from_iterable(rows)), key=lambda lane: -lane.priority)


def look_later(db: sqlite3.Connection, lanes: Iterable[Lane], now: datetime) -> None:
    """Let lanes that had nothing for a claim come after the others of their owners."""
    db.executemany(STATEMENTS["look_later"], [{**asdict(lane), "now": to_micros(now)} for lane in lanes])


def put_off(
    db: sqlite3.Connection, lanes: Iterable[Lane], *, now: datetime, until: datetime, queues: Sequence[str]
) -> tuple[datetime | None, datetime | None]:
    """Put lanes off to when their first run wakes, or remove them.

    Returns when the next run wakes after `until`, and when the next wakes after `now` that was not taken.
    """
    bound, later, left = to_micros(until), list[int | None](), list[int | None]()
    for lane in lanes:
        which = asdict(lane)
        [first] = db.execute(STATEMENTS["first_in_lane"], which).fetchone()
        if first is None:
            db.execute(STATEMENTS["delete_lane"], which)
        elif first > bound:
            db.execute(STATEMENTS["put_off_lane"], {**which, "next_at": first})
        else:  # it has runs that this claim did not take
            later += db.execute(STATEMENTS["next_in_lane"], {**which, "until": bound}).fetchone()
            left += db.execute(STATEMENTS["next_in_lane"], {**which, "until": to_micros(now)}).fetchone()
    later += db.execute(STATEMENTS["next_lane_at"], {"until": bound, "queues": to_json(queues)}).fetchone()
    return _first(later), _first(left)


def _first(times: Iterable[int | None]) -> datetime | None:
    return maybe_time(min((each for each in times if each is not None), default=None))
