"""When a cron expression fires: by the rules of Debian's cron, in any time zone, as UTC instants.

Local time matters only inside a stretch of constant offset, where it is plain arithmetic; what happens at the
border of two stretches is the daylight saving policy. A *fixed* entry (neither its minute nor its hour field starts
with a star) runs right after a gap and once, the first time, in a repeated hour. Any other entry follows real time:
in a gap it has no slots, in a repeated hour it has them twice. An explicit `Dst` overrides either.
A shift of three hours or more corrects the clock: all entries follow real time there, whatever the policy.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from horae.core import cron_syntax
from horae.core.cron_syntax import LAST, DayOfMonth, DayOfWeek, Fields
from horae.core.errors import InternalError
from horae.core.timeline import DAY, Stretch, epoch_seconds, from_epoch, stretch_at

SEARCH_YEARS = 48  # 29 February on a given weekday recurs after at most 40 years
LAST_SEARCHED_YEAR = 9000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FAR = 2 * DAY  # more than local times of one instant can differ


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
    AFTER_GAP = "after_gap"  # `local` did not exist, so it runs at the first instant after it
    FIRST_PASS = "first_pass"  # `local` happens twice; this is the first time
    SECOND_PASS = "second_pass"


@dataclass(frozen=True, slots=True)
class Note:
    """What daylight saving did to a slot."""

    kind: NoteKind
    local: datetime  # the wall time that the expression asks for; naive on purpose
    once: bool = False  # the other instant of the repeated time is no slot


@dataclass(frozen=True, slots=True)
class Slot:
    """One nominal fire time, in UTC."""

    at: datetime
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression: equal texts are equal, and the tables behind it are shared by all who parse it."""

    expression: str
    fields: Fields = field(repr=False, compare=False)
    _next_second: tuple[int, ...] = field(repr=False, compare=False)  # at v: the least allowed value >= v, or -1
    _next_minute: tuple[int, ...] = field(repr=False, compare=False)
    _next_hour: tuple[int, ...] = field(repr=False, compare=False)
    _next_month: tuple[int, ...] = field(repr=False, compare=False)
    _years: tuple[int, ...] = field(repr=False, compare=False)  # empty: every year
    _days: tuple[tuple[int, ...], ...] = field(repr=False, compare=False)  # [month length - 28][weekday of the 1st]
    _first_time: int = field(repr=False, compare=False)  # of a day, in seconds

    def next(self, after: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> datetime | None:
        """The first slot strictly after `after`, in UTC; None when none comes within 48 years (or by its last year)."""
        found = self._search(after, zone, dst)
        return None if found is None else from_epoch(found[0])

    def next_slot(self, after: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> Slot | None:
        """As `next`, with what daylight saving did to the slot."""
        found = self._search(after, zone, dst)
        if found is None:
            return None
        instant, stretch, local = found
        return Slot(from_epoch(instant), _note(instant, stretch, local, self._fold(dst)))

    def skipped_in_gaps(
        self, after: datetime, until: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE
    ) -> list[datetime]:
        """The slots of a fixed entry that `gap: skip` drops, `after < slot <= until`, as the instants right after the gap.

        An instant that is a slot by its own local time is not among them: that one runs.
        """
        if dst.gap is not Gap.SKIP or not self.fields.fixed:
            return []
        first, last = epoch_seconds(after) + 1, epoch_seconds(until)
        ends = _gap_ends(zone, first, last)
        return [from_epoch(stretch.end) for stretch in ends if self._lost_in(stretch, zone)]

    def count(self, start: datetime, end: datetime, zone: ZoneInfo, dst: Dst = NO_CHOICE) -> int:
        """How many slots there are with `start <= slot < end`, without walking them."""
        instant, last = max(-epoch_seconds_up(start), 0), epoch_seconds_up(end)
        raise NotImplementedError

    def _search(self, after: datetime, zone: ZoneInfo, dst: Dst) -> tuple[int, Stretch, int] | None:
        """The instant of the next slot, its stretch (the one before, for a slot right after a gap) and its local time."""
        since = max(epoch_seconds(after), -1)
        fold, run_after = self._fold(dst), self._runs_after_gaps(dst)
        stretch, instant = stretch_at(zone, since), since + 1
        last_year = min(after.year + SEARCH_YEARS, LAST_SEARCHED_YEAR)
        while True:
            begin, end = _span(stretch, fold)
            local = self._on_or_after(max(instant, begin) + stretch.offset, last_year)
            if local is None:
                return None
            found = local - stretch.offset
            if found >= end:
                if not (run_after and stretch.end <= found < stretch.end + stretch.gap):
                    instant = _resume(instant, found, stretch)
                    stretch = stretch_at(zone, instant)
                    continue
                found = stretch.end
            if found <= since:
                raise InternalError(f"cron {self.expression!r} in {zone.key} went from {since} back to {found}")
            return found, stretch, local
