"""Queues in SQLite: what administrators say about them, what that leaves to a claim, and how much waits in them."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.decisions.fairness import Rooms
from horae.core.lifecycle import FINAL
from horae.core.records import QueueSettings
from horae.ports.reader import QueueDepth
from horae.stores.sqlite.codecs import maybe_time, to_micros
from horae.stores.sqlite.database import STATEMENTS

MAX_DEPTH = 10_000  # how far the runs of a queue, or dead letters, are counted
LEAST_DEPTH = 20  # how far they are counted at least, however many queues there are
MAX_LOOK = 20_000  # waiting runs that one call looks at
MAX_ENDED = 10_000  # ended runs that one call looks at
LATELY = 1_000  # runs of a queue that its lateness is taken from


def settings(db: sqlite3.Connection) -> Mapping[str, QueueSettings]:
    """The settings of queues that ever had some; few, and often none."""
    return {
        queue: QueueSettings(queue=queue, paused=bool(paused), concurrency=concurrency)
        for queue, paused, concurrency in db.execute(STATEMENTS["queue_settings"])
    }


def limited(db: sqlite3.Connection) -> frozenset[str]:
    """The queues that have a concurrency limit."""
    return frozenset(each.queue for each in settings(db).values() if each.concurrency is not None)


def rooms(db: sqlite3.Connection, known: Mapping[str, QueueSettings], queues: Iterable[str]) -> Rooms:
    """How many more runs of limited queues may be held, by what all nodes hold of them."""
    return Rooms(
        {
            queue: limit - db.execute(STATEMENTS["held_of_queue"], {"queue": queue, "bound": limit}).fetchone()[0]
            for queue in set(queues)
            if queue in known and (limit := known[queue].concurrency) is not None
        }
    )


def queues(
    db: sqlite3.Connection, now: datetime, owner: str | None, queue: str | None, after: str, limit: int
) -> list[QueueDepth]:
    """The first queues after a name that have live runs (of an owner), and without an owner those with settings."""
    said = settings(db)
    which = {"now": to_micros(now), "bound": MAX_LOOK, "owner": owner, "after": after, "limit": limit}
    depths = _depths_beside_lanes(db, which)
    if owner is None:
        for name, each in said.items():
            if each != QueueSettings(queue=name):
                depths.setdefault(name, _Depth())
    for (name,) in db.execute(STATEMENTS["queues_of_lanes"], which):
        depths.setdefault(name, _Depth())
    names = sorted(name for name in depths if name > after and queue in (None, name))[:limit]
    _add_waiting(db, depths, names, which)
    return [_told(name, depths[name], said.get(name) or QueueSettings(queue=name)) for name in names]


def _told(queue: str, depth: "_Depth", said: QueueSettings) -> QueueDepth:
    return QueueDepth(
        queue=queue,
        depth=min(depth.waiting, MAX_DEPTH),
        oldest_due_at=maybe_time(depth.oldest),
        running=depth.running,
        paused=said.paused,
        concurrency=said.concurrency,
    )


@dataclass(slots=True)
class _Depth:
    waiting: int = 0
    oldest: int | None = None
    running: int = 0

    def add(self, waiting: int, oldest: int | None, running: int = 0) -> None:
        self.waiting += waiting
        self.running += running
        if oldest is not None:
            self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)


def _depths_beside_lanes(db: sqlite3.Connection, which: Mapping[str, Any]) -> dict[str, _Depth]:
    """What is held, parked or paused: that is in no lane."""
    depths: dict[str, _Depth] = {}
    for queue, running, claimed, oldest in db.execute(STATEMENTS["held_by_queue"], which):
        depths.setdefault(queue, _Depth()).add(claimed, oldest, running)
    whose = "" if which["owner"] is None else "_of_owner"
    for queue, count, oldest in db.execute(STATEMENTS[f"parked_by_queue{whose}"], which):
        depths.setdefault(queue, _Depth()).add(count, oldest)
    for (queue,) in db.execute(STATEMENTS[f"paused_queues{whose}"], which):
        depths.setdefault(queue, _Depth())
    return depths


def _add_waiting(
    db: sqlite3.Connection, depths: Mapping[str, _Depth], names: Sequence[str], which: Mapping[str, Any]
) -> None:
    """Count what waits in the lanes of some queues; each up to a share of what is looked at in all."""
    lanes = [lane for name in names for lane in db.execute(STATEMENTS["due_lanes_of_queue"], {**which, "queue": name})]
    bound = min(MAX_DEPTH, max(MAX_LOOK // max(len(lanes), 1), LEAST_DEPTH))
    for queue, priority, owner in lanes:
        lane = {"queue": queue, "priority": priority, "owner": owner, "now": which["now"], "bound": bound}
        depths[queue].add(*db.execute(STATEMENTS["depth_of_lane"], lane).fetchone())


def lateness(
    db: sqlite3.Connection, since: datetime, owner: str | None, after: str, until: str | None
) -> Mapping[str, timedelta]:
    """For each queue of a range of names the 99th percentile of the lateness of its latest runs."""
    which = {"owner": owner, "after": after, "until": until, "since": to_micros(since), "bound": MAX_ENDED}
    searches = (
        [("latenesses_of_all", {})]
        if owner is None
        else [("latenesses_of_owner", {"state": state.value}) for state in FINAL]
    )
    latest: dict[str, list[tuple[int, int]]] = {}
    for name, own in searches:
        for queue, due_at, late in db.execute(STATEMENTS[name], {**which, **own}):
            latest.setdefault(queue, []).append((due_at, late))
    return {queue: timedelta(microseconds=_percentile(found)) for queue, found in latest.items()}


def due_soon(db: sqlite3.Connection, now: datetime, until: datetime) -> Mapping[str, int]:
    """For each queue how many of the runs and slots to come are due by then."""
    which = {"now": to_micros(now), "until": to_micros(until), "bound": MAX_DEPTH}
    return dict(db.execute(STATEMENTS["due_soon"], which).fetchall())


def _percentile(found: list[tuple[int, int]]) -> int:
    """The 99th percentile of the latest, from (due_at, lateness): of a hundred the last but one."""
    values = sorted(late for _, late in sorted(found, reverse=True)[:LATELY])
    return values[-(-99 * len(values) // 100) - 1]  # rounded up
