"""Turns recorded starts into lateness figures and counts, in memory that does not grow with the duration."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.proof.bench.load import Load

EARLY_US = -1_000  # starts before this lateness are early
PERCENTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))

Figures = dict[str, float | None]


@dataclass(slots=True)
class LatenessHistogram:
    """A histogram of lateness with three significant digits: a few thousand counters for any number of runs."""

    _counts: Counter[int] = field(default_factory=Counter)
    count: int = 0
    _latest_us: int | None = None

    def add(self, late_us: int) -> None:
        """Count one start."""
        self._counts[_rounded(late_us)] += 1
        self.count += 1
        if self._latest_us is None or late_us > self._latest_us:
            self._latest_us = late_us

    def figures(self) -> Figures:
        """Return percentiles and the maximum in milliseconds; None when nothing started."""
        return {**{name: self._at(share) for name, share in PERCENTILES}, "max": _milliseconds(self._latest_us)}

    def _at(self, share: float) -> float | None:
        """The smallest lateness that this share of all starts did not exceed."""
        rank, passed = math.ceil(share * self.count), 0
        for late_us, count in sorted(self._counts.items()):
            passed += count
            if passed >= rank:
                return _milliseconds(late_us)
        return None


@dataclass(slots=True)
class StartTally:
    """Counts of the recorded starts of a load."""

    completed: int = 0  # jobs that started at least once
    duplicated: int = 0  # starts beyond the first of a job
    early: int = 0  # starts more than a millisecond before their time
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)  # of first starts
    minutes: list[LatenessHistogram] = field(default_factory=list)  # the same per minute, if requested
    bystanders: list[tuple[int, int]] = field(default_factory=list)  # due time and lateness of each
    first_due_us: int = 0
    last_start_us: int = 0  # without bystanders
    started: bytearray = field(default_factory=bytearray)  # starts of each job, at most 255


def tally(
    starts: Iterable[tuple[int, int]],
    load: Load,
    *,
    ahead_us: int = 0,
    bystanders_from: int | None = None,
    minutes: int = 0,
) -> StartTally:
    """Compare the recorded starts with the due times of a load.

    `ahead_us` is how far the clock of the store is ahead of the clock of the records. Jobs from `bystanders_from` on
    are counted separately. With `minutes`, each of so many minutes gets figures of its own.
    """
    counts = StartTally(started=bytearray(load.submitted), minutes=[LatenessHistogram() for _ in range(minutes)])
    counts.first_due_us = load.due_us(0) if load.submitted else 0
    for number, at_ns in starts:
        if (place := load.place(number)) is None:
            continue
        if place >= load.submitted:
            counts.early += 1  # of the backlog, which is due far in the future
            continue
        due_us, start_us = load.due_us(place), at_ns // 1000 + ahead_us
        late_us = start_us - due_us
        counts.early += late_us < EARLY_US
        if counts.started[place]:
            counts.duplicated += 1
            counts.started[place] = min(counts.started[place] + 1, 255)
            continue
        counts.started[place] = 1
        counts.completed += 1
        if bystanders_from is not None and place >= bystanders_from:
            counts.bystanders.append((due_us, late_us))
            continue
        counts.lateness.add(late_us)
        counts.last_start_us = max(counts.last_start_us, start_us)
        if minutes:
            minute = (start_us - counts.first_due_us) // 60_000_000
            if 0 <= minute < minutes:
                counts.minutes[minute].add(late_us)
    return counts


def bystander_figures(counts: StartTally) -> Figures:
    """Return the lateness of bystanders that were due while the herd ran, or within its first second."""
    until_us = max(counts.last_start_us, counts.first_due_us + 1_000_000)
    lateness = LatenessHistogram()
    for due_us, late_us in counts.bystanders:
        if counts.first_due_us <= due_us <= until_us:
            lateness.add(late_us)
    return lateness.figures()


def minute_figures(minutes: Iterable[LatenessHistogram]) -> list[dict[str, float | None]]:
    """Return the figures of each minute."""
    chosen = ("p50", "p99", "max")
    return [
        {"minute": number, "completed": minute.count, **{name: minute.figures()[name] for name in chosen}}
        for number, minute in enumerate(minutes, 1)
    ]


def per_second(count: int, seconds: float) -> float | None:
    """Return a rate; None if no time passed."""
    return round(count / seconds, 1) if seconds > 0 else None


def per_1000(seconds_by_role: Mapping[str, float], jobs: int) -> dict[str, float]:
    """Return CPU seconds per 1,000 jobs, by role."""
    return {role: round(seconds / jobs * 1000, 4) for role, seconds in seconds_by_role.items()} if jobs else {}


def _rounded(late_us: int) -> int:
    """Round up to three significant digits."""
    if -1000 < late_us < 1000:
        return late_us
    unit = 10
    while abs(late_us) >= 1000 * unit:
        unit *= 10
    return -(-late_us // unit) * unit


def _milliseconds(late_us: int | None) -> float | None:
    return None if late_us is None else round(late_us / 1000, 3)
