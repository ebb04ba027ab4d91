"""Chooses the lower `wake_at` bound of each claim, with periodic wider scans."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from horae.core.decisions.fairness import Lane
from horae.ports.store import Claims

FLOOR_AGE = timedelta(seconds=2)  # transactions that commit later than this are found by the full scan
FULL_SCAN = timedelta(seconds=10)  # between two scans from the very beginning
LONGEST_SCAN = timedelta(minutes=1)  # the same, when they take long
SCAN_SHARE = 20  # a full scan takes at most this part of the time until the next one
MAX_LANES_LEFT = 10_000  # that are remembered; beyond it all are scanned from the beginning again


class ScanFloor:
    """Follows the claims of one worker.

    Runs are signalled after their commit, with the time of their wake-up. So once a claim has left nothing behind, the
    next one starts at what wakes later than that claim looked for, and at what was signalled since. Runs without a
    signal, or passed over because of their gate, are found by a sweep. It comes twice per lead, so that what was passed
    over at the beginning of its lead is found before it is due.
    """

    def __init__(self, lead: timedelta) -> None:
        self._lead = lead
        self._signalled: datetime | None = None  # the earliest time signalled since the last claim was sent
        self._unknown = False  # something was signalled without a time
        self._reached: datetime | None = None  # what wakes before was offered to a node; None: that is not known
        self._low: datetime | None = None  # where a sweep starts
        self._sweeps = False  # whether the last claim is a sweep
        self._scans = False  # whether the last claim starts at the very beginning
        self._swept_at: datetime | None = None
        self._scanned_at: datetime | None = None
        self._scan_every = FULL_SCAN

    def signal(self, at: datetime | None) -> None:
        """Note that there are runs to claim from `at` on; None when the time is not known."""
        if at is None:
            self._unknown = True
        elif self._signalled is None or at < self._signalled:
            self._signalled = at

    def send(self, now: datetime) -> datetime | None:
        """Return where the claim that is sent now starts; None is the very beginning."""
        signalled, self._signalled = self._signalled, None
        unknown, self._unknown = self._unknown, False
        reached, self._reached = self._reached, None  # nothing is known if there is no answer
        if signalled is not None and self._low is not None:
            self._low = min(self._low, signalled)
        self._scans = _is_past(self._scanned_at, self._scan_every, now)
        if self._scans:
            self._sweeps, self._swept_at, self._scanned_at = True, now, now
            # Doubled until there is an answer: where dead rows pile up, the scan may take too long to be answered at
            # all, and must not be all that is tried.
            self._scan_every = min(2 * self._scan_every, LONGEST_SCAN)
            return None
        self._sweeps = reached is None or unknown or _is_past(self._swept_at, self._lead / 2, now)
        if reached is None or self._sweeps:
            self._swept_at = now
            return self._low
        return reached if signalled is None else min(reached, signalled)

    def answered(
        self, claims: Claims, *, now: datetime, until: datetime, passed_over: bool, took: timedelta = timedelta()
    ) -> None:
        """Learn from what the claim of `now` brought; `passed_over` when it saw runs that must be seen again."""
        lined_up_at = claims.lined_up_at
        if self._scans:
            self._scan_every = max(min(SCAN_SHARE * took, LONGEST_SCAN), FULL_SCAN)
        if self._sweeps:
            offered = claims.first_at if claims.more or passed_over else min(lined_up_at or now, now)
            if offered is not None:
                self._low = min(offered, now) - FLOOR_AGE
            elif self._scans:
                self._low = None  # something is left, and the store does not say how far back
        if not passed_over:
            self._reached = claims.first_at if claims.more else min(lined_up_at or until, until)

    @property
    def sweep_at(self) -> datetime | None:
        """When to claim in any case, after a claim that was no sweep."""
        return None if self._sweeps or self._swept_at is None else self._swept_at + self._lead


class LeftRuns:
    """Where the runs begin that wait in queues with a limit, by lane.

    A claim leaves runs there for lack of room, so they may have woken long before the floor. Without this, each claim
    would step over everything in these queues that no task of this worker is for.
    """

    def __init__(self) -> None:
        self._first: dict[Lane, datetime] = {}

    def begin(self, floor: datetime | None) -> Mapping[Lane, datetime]:
        """Return where the claim that is sent now starts in each lane, which has this floor elsewhere."""
        self._first = {} if floor is None else {lane: min(at, floor) for lane, at in self._first.items()}
        return self._first

    def answered(self, claims: Claims) -> None:
        """Learn from what a claim has left."""
        if claims.left:
            self._first = self._first | dict(claims.left)
        if len(self._first) > MAX_LANES_LEFT:
            self._first = {}


def _is_past(last: datetime | None, interval: timedelta, now: datetime) -> bool:
    return last is None or now - last >= interval
