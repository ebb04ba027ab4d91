"""The slots of a recurring job over all the schedules that it had."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from horae.core.model import Job
from horae.core.records import PastSchedule, ScheduleTrail
from horae.core.schedule.evaluate import count_between, next_after, skipped_in_gaps
from horae.core.schedule.trail import trail_of
from horae.core.schedule.types import Schedule

_TICK = timedelta(microseconds=1)
_NEVER = datetime.max.replace(tzinfo=UTC)


class Timeline:
    """The schedules of a job, each for the time in which it applied."""

    def __init__(self, job: Job, stored: ScheduleTrail | None) -> None:
        trail = trail_of(job, stored)
        current = PastSchedule(
            schedule=job.schedule, revision=trail.since_revision, since=trail.since, until=_NEVER - _TICK
        )
        self._known = (*trail.past, current)
        self._applied = [each for each in self._known if each.since < each.until]
        self._last_revision = job.revision

    @property
    def begin(self) -> datetime:
        """The moment after which every slot is known."""
        return self._applied[0].since

    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot after a moment."""
        for each in self._applied:
            slot = next_after(each.schedule, max(moment, each.since)) if each.until > moment else None
            if slot is not None and slot <= each.until:
                return slot
        return None

    def is_slot(self, moment: datetime) -> bool:
        return self.next_after(moment - _TICK) == moment

    def count(self, first: datetime, last: datetime) -> int:
        """The number of slots from one to another, both included."""
        return sum(count_between(each.schedule, start, end + _TICK) for each, start, end in self._within(first, last))

    def skipped_in_gaps(self, after: datetime, until: datetime) -> list[datetime]:
        """The slots that clock changes drop, as in `core.schedule.evaluate`."""
        parts = self._within(after + _TICK, until)
        return [gap for each, start, end in parts for gap in skipped_in_gaps(each.schedule, start - _TICK, end)]

    def is_stray(self, revision: int, slot: datetime) -> bool:
        """Whether it is no slot of the schedule that a revision had; False where that is not known."""
        schedule = self._schedule_of(revision)
        return schedule is not None and next_after(schedule, slot - _TICK) != slot

    def _schedule_of(self, revision: int) -> Schedule | None:
        had = [each.schedule for each in self._known if each.revision <= revision <= self._last_revision]
        return had[-1] if had else None

    def _within(self, first: datetime, last: datetime) -> Iterator[tuple[PastSchedule, datetime, datetime]]:
        for each in self._applied:
            start, end = max(first, each.since + _TICK), min(last, each.until)
            if start <= end:
                yield each, start, end
