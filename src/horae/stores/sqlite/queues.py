"""Queues in SQLite: what administrators say about them, what that leaves to a claim, and how much waits in them."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.decisions.fairness import Rooms
from horae.core.records import QueueSettings
from horae.ports.reader import QueueDepth
from horae.stores.sqlite.codecs import maybe_time, to_micros
from horae.stores.sqlite.database import STATEMENTS

MAX_DEPTH = 10_000  # how far the runs of a queue, or dead letters, are counted
MAX_LOOK = 100_000  # due runs of one owner that are looked at
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


def queues(db: sqlite3.Connection, now: datetime, owner: str | None) -> list[QueueDepth]:
    """The queues that have live runs (of an owner), and without an owner those that have settings."""
    said = settings(db)
    depths = _depths(db, now) if owner is None else _depths_of_owner(db, now, owner)
    if owner is None:
        for queue, each in said.items():
            if each != QueueSettings(queue=queue):
                depths.setdefault(queue, _Depth())
    return [
        QueueDepth(
            queue=queue,
            depth=min(depth.waiting, MAX_DEPTH),
            oldest_due_at=maybe_time(depth.oldest),
            running=depth.running,
            paused=queue in said and said[queue].paused,
            concurrency=said[queue].concurrency if queue in said else None,
        )
        for queue, depth in sorted(depths.items())
    ]


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


def _depths(db: sqlite3.Connection, now: datetime) -> dict[str, _Depth]:
    bounds = {"now": to_micros(now), "bound": MAX_DEPTH, "owner": None}
    depths: dict[str, _Depth] = {}
    for queue, priority, owner, next_at in db.execute(STATEMENTS["lanes"]).fetchall():
        depth = depths.setdefault(queue, _Depth())
        if next_at <= bounds["now"]:
            which = {**bounds, "queue": queue, "priority": priority, "owner": owner}
            depth.add(*db.execute(STATEMENTS["depth_of_lane"], which).fetchone())
    for queue, count, oldest in db.execute(STATEMENTS["parked_by_queue"], bounds).fetchall():
        depths.setdefault(queue, _Depth()).add(count, oldest)
    _add_held(db, depths, bounds)
    for (queue,) in db.execute(STATEMENTS["paused_queues"]).fetchall():
        depths.setdefault(queue, _Depth())
    return depths


def _depths_of_owner(db: sqlite3.Connection, now: datetime, owner: str) -> dict[str, _Depth]:
    bounds = {"now": to_micros(now), "bound": MAX_LOOK, "owner": owner}
    depths: dict[str, _Depth] = {}
    for queue, count, oldest in db.execute(STATEMENTS["queues_of_owner"], bounds).fetchall():
        depths.setdefault(queue, _Depth()).add(count, oldest)
    _add_held(db, depths, bounds)
    for (queue,) in db.execute(STATEMENTS["queues_ahead_of_owner"], bounds).fetchall():
        depths.setdefault(queue, _Depth())
    return depths


def _add_held(db: sqlite3.Connection, depths: dict[str, _Depth], bounds: Mapping[str, Any]) -> None:
    for queue, running, claimed, oldest in db.execute(STATEMENTS["held_by_queue"], bounds).fetchall():
        depths.setdefault(queue, _Depth()).add(claimed, oldest, running)


def lateness(db: sqlite3.Connection, since: datetime, owner: str | None) -> Mapping[str, timedelta]:
    """For each queue the 99th percentile of the lateness of its latest runs."""
    latest: dict[str, list[tuple[int, int]]] = {}
    for whose, queue in db.execute(STATEMENTS["owners_and_queues"], {"owner": owner}).fetchall():
        which = {"owner": whose, "queue": queue, "since": to_micros(since), "limit": LATELY}
        latest.setdefault(queue, []).extend(db.execute(STATEMENTS["latenesses"], which))
    return {queue: timedelta(microseconds=_percentile(found)) for queue, found in latest.items() if found}


def due_soon(db: sqlite3.Connection, now: datetime, until: datetime) -> Mapping[str, int]:
    """For each queue how many of the runs and slots to come are due by then."""
    which = {"now": to_micros(now), "until": to_micros(until), "bound": MAX_DEPTH}
    return dict(db.execute(STATEMENTS["due_soon"], which).fetchall())


def _percentile(found: list[tuple[int, int]]) -> int:
    """The 99th percentile of the latest, from (due_at, lateness): of a hundred the last but one."""
    values = sorted(late for _, late in sorted(found, reverse=True)[:LATELY])
    return values[-(-99 * len(values) // 100) - 1]  # rounded up
