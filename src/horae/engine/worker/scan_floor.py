"""Where claims begin to look: at what is new, now and then at what nobody told of, seldom at the very beginning."""

from datetime import datetime, timedelta

from horae.ports.store import Claims

FLOOR_AGE = timedelta(seconds=2)  # transactions that commit later than this are found by the full scan
FULL_SCAN = timedelta(seconds=10)  # between two looks at what woke long ago
LONGEST_SCAN = timedelta(minutes=1)  # the same, when they take long
SCAN_SHARE = 20  # a look takes this part of the time until the next one at most


class ScanFloor:
    """Follows the claims of one worker.

    What can be claimed is told after its commit, with the time of its wake-up. So once a claim has left nothing, the
    next one looks at what wakes later than that one looked for, and at what was told since. What nobody told of, or was
    passed over because of its gate, is found by a sweep. It comes twice per lead: so what was passed over at the
    beginning of its lead is found before it is due.
    """

    def __init__(self, lead: timedelta) -> None:
        self._lead = lead
        self._told: datetime | None = None  # the earliest since the last claim was sent
        self._untold = False  # there is something of which no time was told
        self._reached: datetime | None = None  # what wakes before was offered to somebody; None: that is not known
        self._low: datetime | None = None  # as far back as a sweep looks
        self._sweeps = False  # whether the last claim does
        self._scans = False  # whether it begins at the very beginning
        self._swept_at: datetime | None = None
        self._scanned_at: datetime | None = None
        self._scan_every = FULL_SCAN

    def tell(self, at: datetime | None) -> None:
        """There are runs to claim from `at` on; None when nobody knows from when on."""
        if at is None:
            self._untold = True
        elif self._told is None or at < self._told:
            self._told = at

    def send(self, now: datetime) -> datetime | None:
        """Where the claim that is sent now begins; None is the very beginning."""
        told, self._told = self._told, None
        untold, self._untold = self._untold, False
        reached, self._reached = self._reached, None  # nothing is known if there is no answer
        if told is not None and self._low is not None:
            self._low = min(self._low, told)
        self._scans = _is_past(self._scanned_at, self._scan_every, now)
        if self._scans:
            self._sweeps, self._swept_at, self._scanned_at = True, now, now
            # Until there is an answer: where dead rows pile up it may take too long to be answered at all, and must not
            # be all that is tried.
            self._scan_every = min(2 * self._scan_every, LONGEST_SCAN)
            return None
        self._sweeps = reached is None or untold or _is_past(self._swept_at, self._lead / 2, now)
        if reached is None or self._sweeps:
            self._swept_at = now
            return self._low
        return reached if told is None else min(reached, told)

    def answered(
        self, claims: Claims, *, now: datetime, until: datetime, passed_over: bool, took: timedelta = timedelta()
    ) -> None:
        """What the claim of `now` brought; `passed_over` when it saw something that is to be looked at again."""
        lined_up_at = claims.lined_up_at
        if self._scans:
            self._scan_every = max(min(SCAN_SHARE * took, LONGEST_SCAN), FULL_SCAN)
        if self._sweeps:
            offered = claims.first_at if claims.more or passed_over else min(lined_up_at or now, now)
            if offered is not None:
                self._low = min(offered, now) - FLOOR_AGE
            elif self._scans:
                self._low = None  # there is something left, nobody tells how far back
        if not passed_over:
            self._reached = claims.first_at if claims.more else min(lined_up_at or until, until)

    @property
    def sweep_at(self) -> datetime | None:
        """When to claim in any case, after a claim that looked at nothing but what is new."""
        return None if self._sweeps or self._swept_at is None else self._swept_at + self._lead


def _is_past(last: datetime | None, interval: timedelta, now: datetime) -> bool:
    return last is None or now - last >= interval
