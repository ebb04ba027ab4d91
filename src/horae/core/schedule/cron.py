"""When a cron expression fires: by the rules of Debian's cron, in any time zone, as UTC instants.

Inside a stretch of constant offset local time is plain arithmetic; what happens at the border of two stretches is the
daylight saving policy. A *fixed* entry (neither its minute nor its hour field starts with a star) runs right after a
gap, and once, the first time, in a repeated hour. Any other entry follows real time: in a gap it has no slots, in a
repeated hour it has them twice. An explicit `Dst` overrides either default. A shift of three hours or more is a
correction of the clock: there every entry follows real time, whatever the policy.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from horae.core.errors import InternalError
from horae.core.schedule import cron_calendar, cron_syntax
from horae.core.schedule.cron_calendar import Wall
from horae.core.schedule.cron_syntax import FIRST_YEAR, Fields
from horae.core.schedule.zones import DAY, Stretch, epoch_seconds, epoch_seconds_up, from_epoch, stretch_at, walk

SEARCH_YEARS = 48  # 29 February on a given weekday recurs after at most 40 years
LAST_SEARCHED_YEAR = 9000
_END = epoch_seconds(datetime(LAST_SEARCHED_YEAR + 1, 1, 1, tzinfo=UTC))
_FAR = 2 * DAY  # more than two local times of one instant can differ


class Gap(StrEnum):
    """What becomes of a slot whose local time does not exist."""

    RUN_AFTER = "run_after"
    SKIP = "skip"


class Fold(StrEnum):
    """Which of the two instants of a repeated local time is a slot."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Dst:
    """The daylight saving policy; None leaves the choice to the kind of entry."""

    gap: Gap | None = None
    fold: Fold | None = None


NO_CHOICE = Dst()


class NoteKind(StrEnum):
    """What daylight saving did to a slot."""

    AFTER_GAP = "after_gap"  # its local time did not exist, so it is the first instant after the gap
    FIRST_PASS = "first_pass"  # its local time happens twice, and this is the first
    SECOND_PASS = "second_pass"


@dataclass(frozen=True, slots=True)
class Note:
    kind: NoteKind
    local: datetime  # the wall time that the expression names; naive, for it may not exist
    once: bool  # the other instant of a repeated time is no slot


@dataclass(frozen=True, slots=True)
class Slot:
    """One nominal fire time, in UTC."""

    at: datetime
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; made by `parse`."""

    expression: str
    fields: Fields = field(repr=False, compare=False)
    fixed: bool = field(repr=False, compare=False)
    wall: Wall = field(repr=False, compare=False)

    def next(self, after: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> datetime | None:
        """The first slot strictly after `after`, in UTC; None when none comes within 48 years or by its last year."""
        found = self._search(after, zone, dst)
        return None if found is None else from_epoch(found[0])

    def next_slot(self, after: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> Slot | None:
        """As `next`, with what daylight saving did to the slot."""
        found = self._search(after, zone, dst)
        if found is None:
            return None
        instant, local, stretch = found
        return Slot(from_epoch(instant), _note(instant, local, stretch, once=self._fold(dst) is not Fold.BOTH))

    def count(self, start: datetime, end: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> int:
        """How many slots there are with `start <= slot < end`, without walking them."""
        first, last = max(epoch_seconds_up(start), 0), min(epoch_seconds_up(end), _END) - 1
        fold, gap = self._fold(dst), self._gap(dst)
        total = 0
        for stretch in walk(zone, first - 1, last):
            begin, stop = _span(stretch, fold)
            total += self.wall.count(max(first, begin) + stretch.offset, min(stop, last + 1) + stretch.offset)
            if gap is Gap.RUN_AFTER and stretch.end <= last and self._lost_at_end(stretch):
                total += 1
        return total

    def skipped_in_gaps(self, after: datetime, until: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> list[datetime]:
        """The slots of a fixed entry that `gap: skip` drops, as the instants right after the gaps.

        Those with `after < instant <= until`. Where such an instant is a slot by its own local time, nothing is
        reported: a slot is an instant, and that one runs.
        """
        if dst.gap is not Gap.SKIP or not self.fixed:
            return []
        last = min(epoch_seconds(until), _END)
        return [
            from_epoch(stretch.end)
            for stretch in walk(zone, max(epoch_seconds(after), -1), last)
            if stretch.end <= last and self._lost_at_end(stretch)
        ]

    def _search(self, after: datetime, zone: ZoneInfo, dst: Dst) -> tuple[int, int, Stretch] | None:
        """The next slot's instant, its local time, and its stretch (right after a gap: the one before the gap)."""
        if after.year > LAST_SEARCHED_YEAR:
            return None
        since = max(epoch_seconds(after), -1)
        fold, gap = self._fold(dst), self._gap(dst)
        last_year = self._last_year(after.year)
        stretch, instant = stretch_at(zone, since), since + 1
        while True:
            begin, stop = _span(stretch, fold)
            local = self.wall.on_or_after(max(instant, begin) + stretch.offset, last_year)
            if local is None:
                return None
            found = local - stretch.offset
            if found < stop:
                return _later(found, than=since), local, stretch
            if gap is Gap.RUN_AFTER and stretch.end <= found < stretch.end + stretch.gap:
                return _later(stretch.end, than=since), local, stretch
            instant = _later(_resume(instant, found, stretch), than=instant - 1)
            stretch = stretch_at(zone, instant)

    def _gap(self, dst: Dst) -> Gap:
        return dst.gap or (Gap.RUN_AFTER if self.fixed else Gap.SKIP)

    def _fold(self, dst: Dst) -> Fold:
        return dst.fold or (Fold.FIRST if self.fixed else Fold.BOTH)

    def _last_year(self, year: int) -> int:
        return self.wall.years[-1] if self.wall.years else min(max(year, FIRST_YEAR) + SEARCH_YEARS, LAST_SEARCHED_YEAR)

    def _lost_at_end(self, stretch: Stretch) -> bool:
        """Whether local times that are missing at the end of a stretch were named, and the first that exists is not."""
        missing = stretch.end + stretch.offset
        return self.wall.count(missing, missing + stretch.gap) > 0 and not self.wall.names(missing + stretch.gap)


@lru_cache(maxsize=16_384)
def parse(expression: str) -> Cron:
    """Read an expression of 5, 6 or 7 fields or an alias; raises InvalidSchedule. That it ever fires is not checked."""
    fields = cron_syntax.read(expression)
    return Cron(expression.strip(" \t"), fields, fields.fixed, cron_calendar.build(fields))


def _span(stretch: Stretch, fold: Fold) -> tuple[int, int]:
    """The part of a stretch whose instants may be slots."""
    begin = stretch.second_pass_until if fold is Fold.FIRST else stretch.start
    return begin, stretch.first_pass_from if fold is Fold.SECOND else stretch.end


def _resume(instant: int, found: int, stretch: Stretch) -> int:
    """Where to search on: at the end of the stretch, or just before `found` when all between is known to be empty.

    A repeated hour soon after `instant` may hold local times before those searched, so the leap needs room.
    """
    if stretch.end - instant > _FAR and found - stretch.end > _FAR:
        return found - _FAR
    return stretch.end


def _later(instant: int, than: int) -> int:
    """The promise that schedules only move forward, kept in production: a loud end is better than a loop."""
    if instant <= than:
        raise InternalError(f"the search for the next cron slot went from {than} back to {instant}")
    return instant


def _note(instant: int, local: int, stretch: Stretch, *, once: bool) -> Note | None:
    if instant == stretch.end:
        kind = NoteKind.AFTER_GAP
    elif instant >= stretch.first_pass_from:
        kind = NoteKind.FIRST_PASS
    elif instant < stretch.second_pass_until:
        kind = NoteKind.SECOND_PASS
    else:
        return None
    return Note(kind, from_epoch(local).replace(tzinfo=None), once)
