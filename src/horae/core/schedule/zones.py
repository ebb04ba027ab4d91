"""The offsets of a time zone, as stretches of constant offset that integer arithmetic can walk."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CORRECTION = 3 * 3600  # Debian cron: a shift this large corrects the clock and is no daylight saving

# Zones reveal no list of their transitions, so each chunk of about 388 days is probed once and kept.
# No zone has two transitions within 12 hours since 1970 (a test walks them all).
CHUNK_BITS = 25
_PROBE = 12 * 3600
# After 2087 no table lists a change any more: what is left are rules for each year, with two changes, months apart.
_RULES_FROM = 3_723_840_000  # 2088-01-02
_PROBE_OF_RULES = 10 * DAY
_MARGIN = DAY  # chunks overlap, so that no gap or repeated hour is cut by their border


class Stretch(NamedTuple):
    """A span of UTC instants `start <= t < end`, in epoch seconds, over which local time runs without a jump."""

    start: int
    end: int
    offset: int
    second_pass_until: int  # instants before it repeat local times of the stretch before; `start` if none do
    first_pass_from: int  # instants from it on are repeated by the stretch after; `end` if none are
    gap: int  # seconds of local time that do not exist at `end`; 0 when none are missing


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """A zone that is known to exist, by the data that is installed with Horae, so that all nodes agree on it.

    The standard library would ask the machine first, and keeps only the last eight.
    """
    try:
        with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    except (ModuleNotFoundError, OSError):
        return ZoneInfo(name)


def stretch_at(zone: ZoneInfo, instant: int) -> Stretch:
    starts, stretches = _chunk(zone, instant >> CHUNK_BITS)
    return stretches[bisect_right(starts, instant) - 1]


def walk(zone: ZoneInfo, first: int, last: int) -> Iterator[Stretch]:
    """The stretches from that of `first` to that of `last`, each beginning where the one before ended."""
    instant = first
    while instant <= last:
        stretch = stretch_at(zone, instant)
        if stretch.start < instant and instant > first:  # chunks overlap: the same stretch, seen from the next one
            stretch = stretch._replace(start=instant, second_pass_until=max(stretch.second_pass_until, instant))
        yield stretch
        instant = stretch.end


def clock_changes(zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """The instants at which local time jumps for daylight saving, or begins or ends a pass through a repeated hour."""
    first, last = epoch_seconds(after), epoch_seconds(until)
    instants = {
        instant
        for stretch in walk(zone, first, last)
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
    changes = _changes(zone, first, last)
    offsets = [_offset(zone, first), *(offset for _, offset in changes)]
    borders = [first, *(instant for instant, _ in changes), last]
    stretches = [_stretch(borders, offsets, index) for index in range(len(offsets))]
    return borders[:-1], stretches


def _changes(zone: ZoneInfo, first: int, last: int) -> list[tuple[int, int]]:
    """Every instant at which the offset changes, with the offset from then on."""
    changes = []
    step = _PROBE if first < _RULES_FROM else _PROBE_OF_RULES
    left, offset = first, _offset(zone, first)
    while left < last:
        right = min(left + step, last)
        arrived = _offset(zone, right)
        if arrived != offset:
            changes.append((_turn(zone, left, right), arrived))
        left, offset = right, arrived
    return changes


def _turn(zone: ZoneInfo, left: int, right: int) -> int:
    """The first instant that no longer has the offset of `left`."""
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
    return seconds if 0 < seconds < CORRECTION else 0
