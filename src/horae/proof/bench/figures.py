"""From records to figures: how late, how early, how often; in memory that does not grow with the time it took."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.proof.bench.load import Load

EARLY_US = -1_000  # a start is early from here on
PERCENTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))

Figures = dict[str, float | None]


@dataclass(slots=True)
class Lateness:
    """A distribution of lateness, kept to three digits: a few thousand counters, however many runs there are."""

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
        """Percentiles and the maximum in milliseconds; None when nothing started."""
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
class Tally:
    """What the records of a load say."""

    completed: int = 0  # jobs that started at least once
    duplicated: int = 0  # starts beyond the first of a job
    early: int = 0  # starts more than a millisecond before their time
    lateness: Lateness = field(default_factory=Lateness)  # of first starts
    minutes: list[Lateness] = field(default_factory=list)  # the same by the minute, if that was asked for
    bystanders: list[tuple[int, int]] = field(default_factory=list)  # when they were due, and how late they were
    first_due_us: int = 0
    last_start_us: int = 0  # of what is measured, bystanders apart
    started: bytearray = field(default_factory=bytearray)  # by place: how often, up to 255


def tally(
    starts: Iterable[tuple[int, int]],
    load: Load,
    *,
    ahead_us: int = 0,
    bystanders_from: int | None = None,
    minutes: int = 0,
) -> Tally:
    """Judge what was recorded against what was promised.

    `ahead_us` is how far the store's clock is ahead of the one that was recorded by. Places from `bystanders_from` on
    are told apart. With `minutes` each of so many gets its own figures, of what started in it.
    """
    told = Tally(started=bytearray(load.submitted), minutes=[Lateness() for _ in range(minutes)])
    told.first_due_us = load.due_us(0) if load.submitted else 0
    for number, at_ns in starts:
        if (place := load.place(number)) is None:
            continue
        if place >= load.submitted:
            told.early += 1  # of the backlog, whose time is far away
            continue
        due_us, start_us = load.due_us(place), at_ns // 1000 + ahead_us
        late_us = start_us - due_us
        told.early += late_us < EARLY_US
        if told.started[place]:
            told.duplicated += 1
            told.started[place] = min(told.started[place] + 1, 255)
            continue
        told.started[place] = 1
        told.completed += 1
        if bystanders_from is not None and place >= bystanders_from:
            told.bystanders.append((due_us, late_us))
            continue
        told.lateness.add(late_us)
        told.last_start_us = max(told.last_start_us, start_us)
        if minutes:
            minute = (start_us - told.first_due_us) // 60_000_000
            if 0 <= minute < minutes:
                told.minutes[minute].add(late_us)
    return told


def bystander_figures(told: Tally) -> Figures:
    """How late those were that were due while the herd ran, or within a second of it."""
    until_us = max(told.last_start_us, told.first_due_us + 1_000_000)
    lateness = Lateness()
    for due_us, late_us in told.bystanders:
        if told.first_due_us <= due_us <= until_us:
            lateness.add(late_us)
    return lateness.figures()


def minute_figures(minutes: Iterable[Lateness]) -> list[dict[str, float | None]]:
    """How each minute went."""
    return [
        {
            "minute": number,
            "completed": minute.count,
            **{name: minute.figures()[name] for name in ("p50", "p99", "max")},
        }
        for number, minute in enumerate(minutes, 1)
    ]


def per_second(count: int, seconds: float) -> float | None:
    """A rate; None where no time passed."""
    return round(count / seconds, 1) if seconds > 0 else None


def per_1000(seconds_by_role: Mapping[str, float], jobs: int) -> dict[str, float]:
    """CPU seconds per 1,000 jobs, by role."""
    return {role: round(seconds / jobs * 1000, 4) for role, seconds in seconds_by_role.items()} if jobs else {}


def _rounded(late_us: int) -> int:
    """To three digits, or to the microsecond where that is finer; never to less than it was."""
    if -1000 < late_us < 1000:
        return late_us
    unit = 10
    while abs(late_us) >= 1000 * unit:
        unit *= 10
    return -(-late_us // unit) * unit


def _milliseconds(late_us: int | None) -> float | None:
    return None if late_us is None else round(late_us / 1000, 3)
