"""Schedules and their arithmetic: the next slot, the slots of a range, and what to tell a user beforehand."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TypeGuard, assert_never

from horae.core.errors import InvalidSchedule
from horae.core.schedule import cron, describe
from horae.core.schedule.cron import Cron, Dst, Fold, Gap, Note, NoteKind, Slot
from horae.core.schedule.cron_syntax import Fields
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.timestamps import parse_timestamp, rfc3339
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, Now, Recurring, Schedule
from horae.core.schedule.zones import clock_changes, zone_named

__all__ = [
    "At",
    "Calendar",
    "CronSchedule",
    "Dst",
    "Every",
    "Fire",
    "Fold",
    "Gap",
    "Note",
    "NoteKind",
    "Now",
    "Recurring",
    "Schedule",
    "Slot",
    "count_between",
    "is_recurring",
    "jittered",
    "last_before",
    "next_after",
    "next_slot",
    "parse_schedule",
    "parse_timestamp",
    "preview",
    "refuse_never_firing",
    "rfc3339",
    "schedule_to_wire",
    "skipped_in_gaps",
    "slots_between",
    "slots_until",
    "warnings",
]

_TICK = timedelta(microseconds=1)  # datetimes know nothing finer, so "from t on" is "after t less a tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A slot as a user previews it."""

    at: datetime
    note: str | None = None


def is_recurring(schedule: Schedule) -> TypeGuard[Recurring]:
    return isinstance(schedule, (Every, CronSchedule, Calendar))  # a union would be made at every call


def follows_zone(schedule: Schedule) -> bool:
    """Whether its slots are times of a zone whose offset may be changed."""
    return isinstance(schedule, CronSchedule | Calendar) and schedule.timezone != "UTC"


def next_after(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot strictly after `after`; None when there is none. `now` has no slots, `at` has one."""
    if isinstance(schedule, Now):
        return None
    if isinstance(schedule, At):
        return schedule.time if schedule.time > after else None
    since = _since(schedule, after)
    if isinstance(schedule, Every):
        slot = _next_interval(schedule, since)
    else:
        slot = _cron(schedule).next(since, zone_named(schedule.timezone), schedule.dst)
    return slot if slot is not None and _before_end(schedule, slot) else None


def slots_until(
    schedule: Schedule, since: datetime, until: datetime, limit: int
) -> tuple[list[datetime], datetime | None]:
    """The slots with `since <= slot <= until`, oldest first, at most `limit`, and the slot that follows them."""
    slot = next_after(schedule, _just_before(since))
    slots: list[datetime] = []
    while slot is not None and slot <= until and len(slots) < limit:
        slots.append(slot)
        slot = _following(schedule, slot)
    return slots, slot


def next_slot(schedule: Schedule, after: datetime) -> Slot | None:
    """As `next_after`, with what daylight saving did to the slot."""
    if not isinstance(schedule, CronSchedule | Calendar):
        at = next_after(schedule, after)
        return None if at is None else Slot(at)
    zone = zone_named(schedule.timezone)
    slot = _cron(schedule).next_slot(_since(schedule, after), zone, schedule.dst)
    return slot if slot is not None and _before_end(schedule, slot.at) else None


def slots_between(schedule: Schedule, start: datetime, end: datetime, limit: int | None = None) -> Iterator[Slot]:
    """The slots with `start <= slot < end`, oldest first, at most `limit`."""
    slot = next_slot(schedule, _just_before(start))
    found = 0
    while slot is not None and slot.at < end and (limit is None or found < limit):
        yield slot
        found += 1
        slot = next_slot(schedule, slot.at)


def count_between(schedule: Schedule, start: datetime, end: datetime, cap: int | None = None) -> int:
    """How many slots there are with `start <= slot < end`, or `cap` if more; the cost does not grow with the number."""
    if not is_recurring(schedule):
        count = sum(1 for _ in slots_between(schedule, start, end))
    else:
        start = max(start, schedule.starts_at or start)
        end = min(end, schedule.ends_at or end)
        count = _count(schedule, start, end) if start < end else 0
    return count if cap is None else min(count, cap)


def last_before(schedule: Schedule, end: datetime, *, not_before: datetime) -> datetime | None:
    """The newest slot with `not_before <= slot < end`."""
    newest = next_after(schedule, _just_before(not_before))
    if newest is None or newest >= end:
        return None
    empty_from = end  # no slot lies between it and the end
    while (following := next_after(schedule, newest)) is not None and following < end:
        middle = following + (empty_from - following) / 2
        beyond = next_after(schedule, middle)
        if beyond is not None and beyond < end:
            newest = beyond
        else:
            newest, empty_from = following, middle
    return newest


def skipped_in_gaps(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """The slots that `gap: skip` drops, `after < slot <= until`, as the instants right after the gaps."""
    if not isinstance(schedule, CronSchedule | Calendar) or schedule.dst.gap is not Gap.SKIP:
        return []
    zone = zone_named(schedule.timezone)
    skipped = _cron(schedule).skipped_in_gaps(_since(schedule, after), until, zone, schedule.dst)
    return [slot for slot in skipped if _before_end(schedule, slot)]


def jittered(schedule: Schedule, job_id: str, slot: datetime) -> datetime:
    """When the run of a slot is due: up to `jitter` later, the same on every node, and before the next slot."""
    if not is_recurring(schedule) or not schedule.jitter:
        return slot
    following = next_after(schedule, slot)
    room = schedule.jitter if following is None else min(schedule.jitter, following - slot - _TICK)
    luck = blake2b(f"{job_id} {rfc3339(slot)}".encode(), digest_size=8).digest()
    return slot + _TICK * (int.from_bytes(luck) % (room // _TICK + 1))


def refuse_never_firing(schedule: Schedule, now: datetime) -> None:
    """Raise InvalidSchedule for a recurring schedule without a slot after `now`. An `at` in the past runs at once."""
    if not is_recurring(schedule) or next_after(schedule, now) is not None:
        return
    if schedule.ends_at is None:
        raise InvalidSchedule(f"it can never fire: {_impossibility(schedule)}")
    if schedule.ends_at <= now:
        raise InvalidSchedule("it can never fire: ends_at has passed", pointer="/schedule/ends_at")
    endless = next_after(replace(schedule, ends_at=None), now)
    if endless is None:
        raise InvalidSchedule(f"it can never fire: {_impossibility(schedule)}")
    raise InvalidSchedule(
        f"it can never fire: its first slot would be {rfc3339(endless)}, which is not before ends_at",
        pointer="/schedule/ends_at",
    )


def preview(schedule: Schedule, after: datetime, count: int) -> list[Fire]:
    """The next slots strictly after `after`, with what daylight saving does to them in words."""
    fires: list[Fire] = []
    slot = next_slot(schedule, after)
    while slot is not None and len(fires) < count:
        fires.append(Fire(at=slot.at, note=_note(schedule, slot)))
        slot = next_slot(schedule, slot.at)
    return fires


def warnings(schedule: Schedule, after: datetime | None = None) -> list[str]:
    """What may surprise the user; with `after` also what the clock changes of the year after it do to fixed times."""
    match schedule:
        case Now() | At():
            return []
        case Every():
            return [_OFTEN] if schedule.interval < timedelta(minutes=1) else []
        case CronSchedule() | Calendar():
            surprises = _surprises(_cron(schedule))
            return surprises if after is None else surprises + _clock_changes(schedule, after)
        case _:
            assert_never(schedule)


# --- helpers --------------------------------------------------------------------------------------------------------


def _cron(schedule: CronSchedule | Calendar) -> Cron:
    return cron.parse(schedule.expression)


def _just_before(moment: datetime) -> datetime:
    return moment - _TICK


def _since(schedule: Recurring, after: datetime) -> datetime:
    return after if schedule.starts_at is None else max(after, _just_before(schedule.starts_at))


def _before_end(schedule: Recurring, slot: datetime) -> bool:
    return schedule.ends_at is None or slot < schedule.ends_at


def _next_interval(every: Every, after: datetime) -> datetime | None:
    intervals = (after - every.anchor) // every.interval + 1
    try:
        return every.anchor + every.interval * max(intervals, 0)
    except OverflowError:
        return None  # beyond the last datetime


def _following(schedule: Schedule, slot: datetime) -> datetime | None:
    """The slot after one; the next of an interval costs a fraction of what `next_after` does for any moment."""
    if not isinstance(schedule, Every):
        return next_after(schedule, slot)
    try:
        following = slot + schedule.interval
    except OverflowError:
        return None  # beyond the last datetime
    return following if _before_end(schedule, following) else None


def _count(schedule: Recurring, start: datetime, end: datetime) -> int:
    if isinstance(schedule, Every):
        return _intervals_before(schedule, end) - _intervals_before(schedule, start)
    return _cron(schedule).count(start, end, zone_named(schedule.timezone), schedule.dst)


def _intervals_before(every: Every, moment: datetime) -> int:
    return max(-((every.anchor - moment) // every.interval), 0)


def _impossibility(schedule: Recurring) -> str:
    if isinstance(schedule, Every):
        return "its intervals leave the calendar"
    return f"no date to come fits {schedule.expression!r}"


def _note(schedule: Schedule, slot: Slot) -> str | None:
    if slot.note is None or not isinstance(schedule, CronSchedule | Calendar):
        return None
    return describe.describe_note(slot.note, slot.at, schedule.timezone)


_SHORTEST = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days of each month in an ordinary year
_OFTEN = "it fires more often than once a minute"


def _surprises(parsed: Cron) -> list[str]:
    fields = parsed.fields
    surprises = []
    if not fields.both_days:
        surprises.append(
            "day of month and day of week are both set, so it fires when either fits; "
            "put + before the day of week to ask for both"
        )
    if len(fields.second.values) > 1:
        surprises.append(_OFTEN)
    if missing := _day_that_some_months_lack(fields):
        surprises.append(f"it passes over months without a day {missing}; L is the last day of any month")
    surprises.extend(
        f"the step of {item} in the {name} field leads beyond the field, so it fits only its first value"
        for name, item in fields.idle_steps()
    )
    return surprises


def _day_that_some_months_lack(fields: Fields) -> int | None:
    earliest = min(fields.day.values, default=1)
    if fields.day.moving or not fields.weekday.everything or all(earliest <= _SHORTEST[m] for m in fields.month.values):
        return None
    return earliest


def _clock_changes(schedule: CronSchedule | Calendar, after: datetime) -> list[str]:
    if not _cron(schedule).fixed:
        return []
    until = after + timedelta(days=366)
    zone = zone_named(schedule.timezone)
    slots = (next_slot(schedule, _just_before(moment)) for moment in clock_changes(zone, after, until))
    notes = [_note(schedule, slot) for slot in slots if slot is not None]
    skips = [describe.describe_skip(slot, schedule.timezone) for slot in skipped_in_gaps(schedule, after, until)]
    return list(dict.fromkeys(filter(None, notes))) + skips
