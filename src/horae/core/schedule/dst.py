"""What daylight saving does to the slots of a schedule: the policy a user can choose, and the DST default.

The defaults are Debian cron's. A *fixed* entry (neither its minute nor its hour field starts with a star) runs right
after a gap, and in a repeated hour only the first time. Any other entry follows real time: it has no slots in a gap and
twice as many in a repeated hour. A shift of three hours or more is a correction of the clock, not daylight saving:
there every entry follows real time, whatever the policy.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

CLOCK_CORRECTION = 3 * 3600  # seconds; a shift this large is not daylight saving


class Gap(StrEnum):
    """What happens to a slot whose local time does not exist."""

    RUN_AFTER = "run_after"
    SKIP = "skip"


class Fold(StrEnum):
    """Which of the two instants of a repeated local time is a slot."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Dst:
    """The DST policy that a schedule names; None means the default for its kind of entry."""

    gap: Gap | None = None
    fold: Fold | None = None


DEFAULT_DST = Dst()


def dst_rules(chosen: Dst, *, fixed: bool) -> tuple[Gap, Fold]:
    """Return the rules that apply to an entry: what its schedule chose, else the default."""
    if fixed:
        return chosen.gap or Gap.RUN_AFTER, chosen.fold or Fold.FIRST
    return chosen.gap or Gap.SKIP, chosen.fold or Fold.BOTH


class DstNoteKind(StrEnum):
    """How daylight saving affected a slot."""

    AFTER_GAP = "after_gap"  # its local time did not exist, so it is the first instant after the gap
    FIRST_PASS = "first_pass"  # its local time happens twice, and this is the first
    SECOND_PASS = "second_pass"


@dataclass(frozen=True, slots=True)
class DstNote:
    """How daylight saving affected one slot."""

    kind: DstNoteKind
    local: datetime  # the wall time that the expression names; naive, because it may not exist
    once: bool  # the other instant of a repeated time is not a slot
