"""The trail of the schedules of a job: what a change adds to it."""

from datetime import timedelta
from itertools import pairwise

from horae.core.model import Job
from horae.core.records import ScheduleTrail
from horae.core.schedule.trail import MOST_PAST, extended, trail_of
from horae.core.schedule.types import Every
from horae.core.values import replace
from tests.core.builders import NOON, a_job

MINUTE = timedelta(minutes=1)
NEW = replace(a_job(), created_at=NOON, updated_at=NOON)


def changed(job: Job, minutes: float, seconds: int | None = None) -> Job:
    """The job as it is changed some minutes after noon, perhaps to another interval."""
    schedule = job.schedule if seconds is None else Every(interval=timedelta(seconds=seconds), anchor=NOON)
    return replace(job, revision=job.revision + 1, updated_at=NOON + minutes * MINUTE, schedule=schedule)


def trail_after(*versions: Job) -> ScheduleTrail:
    trail = trail_of(versions[0], None)
    for before, after in pairwise(versions):
        trail = extended(trail_of(before, trail), before, after)
    return trail


def test_a_change_of_anything_else_leaves_the_schedule_in_force() -> None:
    trail = trail_after(NEW, changed(NEW, 1))
    assert (trail.revision, trail.changed_at) == (2, NOON + MINUTE)
    assert (trail.since, trail.since_revision, trail.past) == (NOON, 1, ())


def test_a_new_schedule_is_in_force_from_its_change_on() -> None:
    second = changed(NEW, 1)
    third = changed(second, 2, seconds=7)
    trail = trail_after(NEW, second, third)
    assert (trail.since, trail.since_revision) == (NOON + 2 * MINUTE, 3)
    [past] = trail.past
    assert (past.schedule, past.revision) == (NEW.schedule, 1)
    assert (past.since, past.until) == (NOON, NOON + 2 * MINUTE)


def test_a_change_that_was_not_recorded_begins_a_new_trail() -> None:
    second = changed(NEW, 1)
    trail = trail_after(NEW, second)
    unrecorded = changed(second, 3, seconds=7)
    assert trail_of(unrecorded, trail).since == NOON + 3 * MINUTE
    assert trail_of(unrecorded, trail).past == ()


def test_where_clocks_disagree_about_the_order_of_changes_the_past_is_forgotten() -> None:
    second = changed(NEW, 2, seconds=7)
    third = changed(second, 1.99, seconds=9)
    trail = trail_after(NEW, second, third)
    assert (trail.since, trail.since_revision, trail.past) == (NOON + 2 * MINUTE, 3, ())
    assert trail.changed_at == third.updated_at


def test_the_oldest_of_many_schedules_are_forgotten() -> None:
    versions = [NEW]
    for number in range(MOST_PAST + 5):
        versions.append(changed(versions[-1], number + 1, seconds=number + 1))
    trail = trail_after(*versions)
    assert len(trail.past) == MOST_PAST
    assert trail.past[0].since == NOON + 5 * MINUTE
