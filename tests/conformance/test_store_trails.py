"""Trails of schedules: every store keeps them as they are, one for each job."""

from datetime import timedelta

from horae.core.changes import Change
from horae.core.model import JobId
from horae.core.records import PastSchedule, ScheduleTrail
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from horae.ports.store import Store
from tests.conformance.builders import MINUTE, NOW, new_id

TICK = timedelta(microseconds=1)
BERLIN = {"type": "cron", "expression": "30 2 * * mon", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}
SCHEDULES = (
    "every 7s",
    {"type": "every", "seconds": 10, "jitter_seconds": 4, "ends_at": "2030-01-01T00:00:00Z"},
    BERLIN,
    {"type": "calendar", "hour": 9, "weekdays": ["mon", "fri"]},
)


def a_trail(**changes: object) -> ScheduleTrail:
    past = tuple(
        PastSchedule(
            schedule=parse_schedule(form, now=NOW),
            revision=number + 1,
            since=NOW + number * MINUTE,
            until=NOW + (number + 1) * MINUTE - TICK,
        )
        for number, form in enumerate(SCHEDULES)
    )
    trail = ScheduleTrail(
        owner="ada",
        job_id=JobId(new_id()),
        revision=9,
        changed_at=NOW + TICK,
        since=NOW - TICK,
        since_revision=7,
        past=past,
    )
    return replace(trail, **changes)


async def test_a_trail_is_read_as_it_was_written(store: Store) -> None:
    trail, other = a_trail(), a_trail(past=())
    await store.apply([Change(puts=(trail, other))])
    assert await store.records(ScheduleTrail, owner="ada", key=trail.job_id) == [trail]
    assert await store.records(ScheduleTrail, owner="ada", key=other.job_id) == [other]
    assert await store.records(ScheduleTrail, owner="eve", key=trail.job_id) == []


async def test_the_next_one_replaces_it(store: Store) -> None:
    trail = a_trail()
    later = replace(trail, revision=10, changed_at=NOW + MINUTE, past=trail.past[1:])
    await store.apply([Change(puts=(trail,))])
    await store.apply([Change(puts=(later,))])
    assert await store.records(ScheduleTrail, owner="ada", key=trail.job_id) == [later]
