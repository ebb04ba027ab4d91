"""When a cron expression fires: Debian cron's rules, in any time zone, as UTC instants.

Between two offset changes of a zone local time is plain arithmetic. What happens at a change is the daylight saving
policy, see `dst`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from horae.core.errors import InternalError
from horae.core.schedule.cron_calendar import WallTimes, wall_times
from horae.core.schedule.cron_syntax import FIRST_YEAR, Fields, parse_fields
from horae.core.schedule.dst import DEFAULT_DST, Dst, DstNote, DstNoteKind, Fold, Gap, dst_rules
from horae.core.schedule.types import NotedSlot
from horae.core.schedule.zones import DAY, Stretch, epoch_seconds, epoch_seconds_up, from_epoch, stretch_at, stretches

SEARCH_YEARS = 48  # 29 February on a given weekday recurs after at most 40 years
LAST_SEARCHED_YEAR = 9000
_END = epoch_seconds(datetime(LAST_SEARCHED_YEAR + 1, 1, 1, tzinfo=UTC))
_LEAP_MARGIN = 2 * DAY  # more than two local times of one instant can differ


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression; made by `parse_cron`."""

    expression: str
    fields: Fields = field(repr=False, compare=False)
    fixed: bool = field(repr=False, compare=False)
    wall: WallTimes = field(repr=False, compare=False)

    def next(self, after: datetime, zone: ZoneInfo, dst: Dst = DEFAULT_DST) -> datetime | None:
        """The first slot strictly after `after`, in UTC; None if there is none within 48 years or by its last year."""
        found = self._search(after, zone, dst)
        return None if found is None else from_epoch(found[0])

    def next_slot(self, after: datetime, zone: ZoneInfo, dst: Dst = DEFAULT_DST) -> NotedSlot | None:
        """Like `next`, with a note on how daylight saving affected the slot."""
        found = self._search(after, zone, dst)
        if found is None:
            return None
        instant, local, stretch = found
        _, fold = dst_rules(dst, fixed=self.fixed)
        return NotedSlot(from_epoch(instant), _note(instant, local, stretch, once=fold is not Fold.BOTH))

    def count(self, start: datetime, end: datetime, zone: ZoneInfo, dst: Dst = DEFAULT_DST) -> int:
        """The number of slots with `start <= slot < end`, computed without visiting each."""
        first, last = max(epoch_seconds_up(start), 0), min(epoch_seconds_up(end), _END) - 1
        gap, fold = dst_rules(dst, fixed=self.fixed)
        total = 0
        for stretch in stretches(zone, first - 1, last):
            begin, stop = _slot_span(stretch, fold)
            total += self.wall.count(max(first, begin) + stretch.offset, min(stop, last + 1) + stretch.offset)
            if gap is Gap.RUN_AFTER and stretch.end <= last and self._moved_by_gap(stretch):
                total += 1
        return total

    def skipped_in_gaps(
        self, after: datetime, until: datetime, zone: ZoneInfo, dst: Dst = DEFAULT_DST
    ) -> list[datetime]:
        """The slots of a fixed entry that `gap: skip` drops, as the instants right after the gaps.

        Returns those with `after < instant <= until`. An instant that is a slot by its own local time is left out,
        because that slot runs.
        """
        if dst.gap is not Gap.SKIP or not self.fixed:
            return []
        last = min(epoch_seconds(until), _END)
        return [
            from_epoch(stretch.end)
            for stretch in stretches(zone, max(epoch_seconds(after), -1), last)
            if stretch.end <= last and self._moved_by_gap(stretch)
        ]

    def _search(self, after: datetime, zone: ZoneInfo, dst: Dst) -> tuple[int, int, Stretch] | None:
        """The next slot's instant, its local time, and its stretch (right after a gap: the one before the gap)."""
        if after.year > LAST_SEARCHED_YEAR:
            return None
        since = max(epoch_seconds(after), -1)
        gap, fold = dst_rules(dst, fixed=self.fixed)
        last_year = self._last_year(after.year)
        stretch, instant = stretch_at(zone, since), since + 1
        while True:
            begin, stop = _slot_span(stretch, fold)
            local = self.wall.on_or_after(max(instant, begin) + stretch.offset, last_year)
            if local is None:
                return None
            found = local - stretch.offset
            if found < stop:
                return _checked_forward(found, since), local, stretch
            if gap is Gap.RUN_AFTER and stretch.end <= found < stretch.end + stretch.gap:
                return _checked_forward(stretch.end, since), local, stretch
            instant = _checked_forward(_continue_at(instant, found, stretch), instant - 1)
            stretch = stretch_at(zone, instant)

    def _last_year(self, year: int) -> int:
        return self.wall.years[-1] if self.wall.years else min(max(year, FIRST_YEAR) + SEARCH_YEARS, LAST_SEARCHED_YEAR)

    def _moved_by_gap(self, stretch: Stretch) -> bool:
        """Whether the gap at the end of a stretch swallows named times, and the first time after it is not named."""
        missing = stretch.end + stretch.offset
        return self.wall.count(missing, missing + stretch.gap) > 0 and not self.wall.contains(missing + stretch.gap)


@lru_cache(maxsize=16_384)
def parse_cron(expression: str) -> Cron:
    """Parse an expression of 5 to 7 fields or an alias; raises InvalidSchedule. It may be one that never fires."""
    fields = parse_fields(expression)
    return Cron(expression.strip(" \t"), fields, fields.fixed, wall_times(fields))


def _slot_span(stretch: Stretch, fold: Fold) -> tuple[int, int]:
    """The part of a stretch whose instants may be slots."""
    begin = stretch.second_pass_until if fold is Fold.FIRST else stretch.start
    return begin, stretch.first_pass_from if fold is Fold.SECOND else stretch.end


def _continue_at(instant: int, found: int, stretch: Stretch) -> int:
    """Where to search next: at the end of the stretch, or just before `found` if everything between is empty.

    A repeated hour soon after `instant` may hold local times before those searched, so the leap needs a margin.
    """
    if stretch.end - instant > _LEAP_MARGIN and found - stretch.end > _LEAP_MARGIN:
        return found - _LEAP_MARGIN
    return stretch.end


def _checked_forward(instant: int, previous: int) -> int:
    """Return `instant`; raise if it is not after `previous`, because an error is better than an endless loop."""
    if instant <= previous:
        raise InternalError(f"the search for the next cron slot went from {previous} back to {instant}")
    return instant


def _note(instant: int, local: int, stretch: Stretch, *, once: bool) -> DstNote | None:
    if instant == stretch.end:
        kind = DstNoteKind.AFTER_GAP
    elif instant >= stretch.first_pass_from:
        kind = DstNoteKind.FIRST_PASS
    elif instant < stretch.second_pass_until:
        kind = DstNoteKind.SECOND_PASS
    else:
        return None
    return DstNote(kind, from_epoch(local).replace(tzinfo=None), once)
