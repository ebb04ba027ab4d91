"""The UTC offsets of a time zone, as stretches of constant offset for integer arithmetic."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

from horae.core.schedule.dst import CLOCK_CORRECTION

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# ZoneInfo does not list its transitions, so each chunk of about 388 days is probed once and cached.
# No zone has two transitions within 12 hours since 1970 (a test walks them all).
CHUNK_BITS = 25
_PROBE_STEP = 12 * 3600
# After 2087 the tables end. What remains are yearly rules, with two changes that are months apart.
_RULES_FROM = 3_723_840_000  # 2088-01-02
_RULES_PROBE_STEP = 10 * DAY
_MARGIN = DAY  # chunks overlap, so that their borders cut no gap or repeated hour


class Stretch(NamedTuple):
    """UTC instants `start <= t < end`, in epoch seconds, during which local time does not jump."""

    start: int
    end: int
    offset: int
    second_pass_until: int  # earlier instants repeat local times of the stretch before; `start` if none do
    first_pass_from: int  # the stretch after repeats the local times from here on; `end` if none
    gap: int  # seconds of local time that do not exist at `end`


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """A zone that is known to exist, from the time zone data installed with Horae, so that all nodes agree.

    The standard library would prefer the machine's data, and caches only eight zones.
    """
    try:
        with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    except (ModuleNotFoundError, OSError):
        return ZoneInfo(name)


def stretch_at(zone: ZoneInfo, instant: int) -> Stretch:
    starts, found = _chunk(zone, instant >> CHUNK_BITS)
    return found[bisect_right(starts, instant) - 1]


def stretches(zone: ZoneInfo, first: int, last: int) -> Iterator[Stretch]:
    """The stretches from `first` to `last`, each beginning where the one before ended."""
    instant = first
    while instant <= last:
        stretch = stretch_at(zone, instant)
        if stretch.start < instant and instant > first:  # chunks overlap: the same stretch, from the next chunk
            stretch = stretch._replace(start=instant, second_pass_until=max(stretch.second_pass_until, instant))
        yield stretch
        instant = stretch.end


def clock_changes(zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """The instants at which local time jumps for daylight saving, or a pass through a repeated hour begins or ends."""
    first, last = epoch_seconds(after), epoch_seconds(until)
    instants = {
        instant
        for stretch in stretches(zone, first, last)
        if stretch.gap or stretch.first_pass_from < stretch.end
        for instant in (stretch.first_pass_from, stretch.end)
    }
    return [from_epoch(instant) for instant in sorted(instants) if first < instant <= last]


def epoch_seconds(moment: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    elapsed = moment - EPOCH
    return elapsed.days * DAY + elapsed.seconds


def epoch_seconds_up(moment: datetime) -> int:
    """Whole seconds since 1970, rounded up."""
    return epoch_seconds(moment) + (moment.microsecond > 0)


def from_epoch(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@lru_cache(maxsize=8192)
def _chunk(zone: ZoneInfo, number: int) -> tuple[list[int], list[Stretch]]:
    first = (number << CHUNK_BITS) - _MARGIN
    last = ((number + 1) << CHUNK_BITS) + _MARGIN
    changes = _offset_changes(zone, first, last)
    offsets = [_offset(zone, first), *(offset for _, offset in changes)]
    borders = [first, *(instant for instant, _ in changes), last]
    return borders[:-1], [_stretch(borders, offsets, index) for index in range(len(offsets))]


def _offset_changes(zone: ZoneInfo, first: int, last: int) -> list[tuple[int, int]]:
    """Every instant at which the offset changes, with the offset from then on."""
    changes = []
    step = _PROBE_STEP if first < _RULES_FROM else _RULES_PROBE_STEP
    left, offset = first, _offset(zone, first)
    while left < last:
        right = min(left + step, last)
        arrived = _offset(zone, right)
        if arrived != offset:
            changes.append((_bisect_change(zone, left, right), arrived))
        left, offset = right, arrived
    return changes


def _bisect_change(zone: ZoneInfo, left: int, right: int) -> int:
    """The first instant after `left` that has another offset."""
    offset = _offset(zone, left)
    while right - left > 1:
        middle = (left + right) // 2
        if _offset(zone, middle) == offset:
            left = middle
        else:
            right = middle
    return right


def _offset(zone: ZoneInfo, instant: int) -> int:
    shift = from_epoch(instant).astimezone(zone).utcoffset() or timedelta()
    return shift.days * DAY + shift.seconds


def _stretch(borders: list[int], offsets: list[int], index: int) -> Stretch:
    start, end, offset = borders[index], borders[index + 1], offsets[index]
    before = offsets[index - 1] if index else offset
    after = offsets[index + 1] if index + 1 < len(offsets) else offset
    return Stretch(
        start=start,
        end=end,
        offset=offset,
        second_pass_until=start + _daylight_shift(before - offset),
        first_pass_from=end - _daylight_shift(offset - after),
        gap=_daylight_shift(after - offset),
    )


def _daylight_shift(seconds: int) -> int:
    return seconds if 0 < seconds < CLOCK_CORRECTION else 0
