"""Evaluates schedules: the next slot, the slots of a range, their number, and when a slot's run is due."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import TypeGuard

from horae.core.errors import InvalidSchedule
from horae.core.schedule.cron import parse_cron
from horae.core.schedule.dst import Gap
from horae.core.schedule.timestamps import TICK, rfc3339
from horae.core.schedule.types import At, Calendar, CronSchedule, Every, NotedSlot, Now, Recurring, Schedule
from horae.core.schedule.zones import zone_named
from horae.core.values import Value


class SlotRange(Value, frozen=True):
    """A range of slots, both ends included."""

    first: datetime
    last: datetime
    count: int


def is_recurring(schedule: Schedule) -> TypeGuard[Recurring]:
    return isinstance(schedule, (Every, CronSchedule, Calendar))  # faster than a union, which is built at every call


def follows_zone(schedule: Schedule) -> bool:
    """Whether its slots are local times of a zone, whose offset may change by law."""
    return isinstance(schedule, CronSchedule | Calendar) and schedule.timezone != "UTC"


def next_after(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot strictly after `after`, or None. `now` has no slots, `at` has one."""
    if isinstance(schedule, Now):
        return None
    if isinstance(schedule, At):
        return schedule.time if schedule.time > after else None
    since = _search_from(schedule, after)
    if isinstance(schedule, Every):
        slot = _next_interval(schedule, since)
    else:
        slot = parse_cron(schedule.expression).next(since, zone_named(schedule.timezone), schedule.dst)
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


def next_slot(schedule: Schedule, after: datetime) -> NotedSlot | None:
    """Like `next_after`, with a note on how daylight saving affected the slot."""
    if not isinstance(schedule, CronSchedule | Calendar):
        at = next_after(schedule, after)
        return None if at is None else NotedSlot(at)
    zone = zone_named(schedule.timezone)
    slot = parse_cron(schedule.expression).next_slot(_search_from(schedule, after), zone, schedule.dst)
    return slot if slot is not None and _before_end(schedule, slot.at) else None


def next_slot_from(schedule: Schedule, start: datetime) -> NotedSlot | None:
    """The first slot that is not before `start`."""
    return next_slot(schedule, _just_before(start))


def slots_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[NotedSlot]:
    """The slots with `start <= slot < end`, oldest first."""
    slot = next_slot_from(schedule, start)
    while slot is not None and slot.at < end:
        yield slot
        slot = next_slot(schedule, slot.at)


def count_between(schedule: Schedule, start: datetime, end: datetime) -> int:
    """The number of slots with `start <= slot < end`; the cost does not grow with the number."""
    if not is_recurring(schedule):
        return sum(1 for _ in slots_between(schedule, start, end))
    start = max(start, schedule.starts_at or start)
    end = min(end, schedule.ends_at or end)
    return _count(schedule, start, end) if start < end else 0


def range_between(schedule: Schedule, start: datetime, end: datetime) -> SlotRange | None:
    """The slots with `start <= slot < end` as one range; None if there are none."""
    count = count_between(schedule, start, end)
    if count == 0:
        return None
    first, last = next_after(schedule, _just_before(start)), last_before(schedule, end, not_before=start)
    assert first is not None
    assert last is not None
    return SlotRange(first, last, count)


def last_before(schedule: Schedule, end: datetime, *, not_before: datetime) -> datetime | None:
    """The newest slot with `not_before <= slot < end`."""
    newest = next_after(schedule, _just_before(not_before))
    if newest is None or newest >= end:
        return None
    empty_from = end  # there is no slot from here to the end
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
    cron = parse_cron(schedule.expression)
    skipped = cron.skipped_in_gaps(_search_from(schedule, after), until, zone, schedule.dst)
    return [slot for slot in skipped if _before_end(schedule, slot)]


def jittered(schedule: Schedule, job_id: str, slot: datetime) -> datetime:
    """When the run of a slot is due: up to `jitter` later, the same on every node, always before the next slot."""
    if not is_recurring(schedule) or not schedule.jitter:
        return slot
    following = next_after(schedule, slot)
    room = schedule.jitter if following is None else min(schedule.jitter, following - slot - TICK)
    digest = blake2b(f"{job_id} {rfc3339(slot)}".encode(), digest_size=8).digest()
    return slot + TICK * (int.from_bytes(digest) % (room // TICK + 1))


def refuse_never_firing(schedule: Schedule, now: datetime) -> None:
    """Raise InvalidSchedule for a recurring schedule without a slot after `now`; an `at` in the past is valid."""
    if not is_recurring(schedule) or next_after(schedule, now) is not None:
        return
    if schedule.ends_at is None:
        raise InvalidSchedule(f"it can never fire: {_why_never(schedule)}")
    if schedule.ends_at <= now:
        raise InvalidSchedule("it can never fire: ends_at has passed", pointer="/schedule/ends_at")
    endless = next_after(replace(schedule, ends_at=None), now)
    if endless is None:
        raise InvalidSchedule(f"it can never fire: {_why_never(schedule)}")
    raise InvalidSchedule(
        f"it can never fire: its first slot would be {rfc3339(endless)}, which is not before ends_at",
        pointer="/schedule/ends_at",
    )


def _just_before(moment: datetime) -> datetime:
    return moment - TICK


def _search_from(schedule: Recurring, after: datetime) -> datetime:
    return after if schedule.starts_at is None else max(after, _just_before(schedule.starts_at))


def _before_end(schedule: Recurring, slot: datetime) -> bool:
    return schedule.ends_at is None or slot < schedule.ends_at


def _next_interval(every: Every, after: datetime) -> datetime | None:
    intervals = (after - every.anchor) // every.interval + 1
    try:
        return every.anchor + every.interval * max(intervals, 0)
    except OverflowError:
        return None  # after the last datetime


def _following(schedule: Schedule, slot: datetime) -> datetime | None:
    """The slot after a slot; for an interval much cheaper than `next_after`, which takes any moment."""
    if not isinstance(schedule, Every):
        return next_after(schedule, slot)
    try:
        following = slot + schedule.interval
    except OverflowError:
        return None  # after the last datetime
    return following if _before_end(schedule, following) else None


def _count(schedule: Recurring, start: datetime, end: datetime) -> int:
    if isinstance(schedule, Every):
        return _intervals_before(schedule, end) - _intervals_before(schedule, start)
    return parse_cron(schedule.expression).count(start, end, zone_named(schedule.timezone), schedule.dst)


def _intervals_before(every: Every, moment: datetime) -> int:
    return max(-((every.anchor - moment) // every.interval), 0)


def _why_never(schedule: Recurring) -> str:
    if isinstance(schedule, Every):
        return "its next interval ends after the year 9999"
    return f"no future date matches {schedule.expression!r}"
