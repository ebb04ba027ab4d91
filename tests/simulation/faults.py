"""What goes wrong in one simulated life: drawn from its seed, fired at named points, and counted."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

# The verbs of the store that nodes and users call here; a host can crash before each and after each.
VERBS = (
    "time", "register", "beat", "unregister", "bury", "orphans", "tidy",
    "create", "plannable", "fire", "fill", "backfill", "change", "change_one_shot",
    "claim", "start", "settle", "end_waiting", "park", "request_stop", "retract", "stops", "held",
    "resolve", "keep_receipt", "set_queue", "expire", "prune",
)  # fmt: skip
RARE = frozenset({"fill", "backfill", "retract", "held", "unregister", "set_queue", "expire", "prune"})
POINTS = tuple(f"{side} {verb}" for verb in VERBS for side in ("before", "after"))

FROZEN_SECONDS = (1.0, 4.0, 7.5, 8.5, 10.0, 14.0)  # the lease is in doubt from 7.2 s on, and lost from 9 s on
SLOW_SECONDS = (0.02, 0.3, 1.5, 4.0)
DOWN_SECONDS = (0.5, 2.0, 5.0, 8.2)


class Kind(StrEnum):
    """Kinds of faults, as the report counts them."""

    CRASH = "crash"
    FROZEN = "frozen"
    LEFT = "left in order"
    JOINED = "joined"
    OUTAGE = "store down"
    REFUSED = "call failed, not done"
    UNANSWERED = "call failed, done"
    SLOW_THERE = "call slow on its way"
    SLOW_BACK = "answer slow"
    SIGNAL_LOST = "signal lost"
    SIGNAL_DOUBLED = "signal doubled"
    SIGNAL_LATE = "signal late"
    CLOCK = "clock offset"


@dataclass
class Fired:
    """What happened so far; the report of many seeds is their sum."""

    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)  # crashes at each
    passed: Counter[str] = field(default_factory=Counter)  # calls of each verb

    def add(self, other: "Fired") -> None:
        self.faults += other.faults
        self.points += other.points
        self.passed += other.passed


@dataclass(frozen=True)
class Disorder:
    """What becomes of one call."""

    there: float  # seconds on its way to the store
    back: float
    refused: bool = False
    unanswered: bool = False
    crash: str | None = None  # the point


class Faults:
    """Decides for each call and each signal of a life; the same seed decides the same."""

    def __init__(self, seed: int, *, until: float) -> None:
        self._chance = random.Random(f"{seed} faults")
        self._until = until  # seconds of the life after which nothing breaks any more
        self.fired = Fired()
        self._crashes = list(self._planned_crashes(seed))
        rates = (0.0, 0.0, 0.004, 0.02)
        self._refused = self._chance.choice(rates)
        self._unanswered = self._chance.choice(rates)
        self._slow = self._chance.choice(rates)
        self._lost = self._chance.choice((0.0, 0.1, 0.5, 1.0))
        self._doubled = self._chance.choice((0.0, 0.1, 0.5))
        self._late = self._chance.choice((0.0, 0.1))
        self.drift = self._chance.choice((0.0, 10e-6))
        self.frozen = self._times(0, 1, 1, 2)
        self.left = self._times(0, 1, 2)
        self.outages = self._times(0, 0, 1)

    def _planned_crashes(self, seed: int) -> Iterator[tuple[str, float]]:
        """Crash points by turns, so that some seeds in a row meet all of them, and from when on each is armed."""
        for number in range(CRASHES):
            point = POINTS[(seed * CRASHES + number) % len(POINTS)]
            armed_at = self._chance.uniform(0.0, 0.6 * self._until)
            yield point, 0.0 if point.partition(" ")[2] in RARE else armed_at

    def _times(self, *counts: int) -> list[float]:
        return sorted(self._chance.uniform(1.0, self._until) for _ in range(self._chance.choice(counts)))

    def choose(self, among: tuple[float, ...]) -> float:
        return self._chance.choice(among)

    def pick(self, count: int) -> int:
        """One of so many."""
        return self._chance.randrange(count)

    def count(self, kind: Kind) -> None:
        self.fired.faults[kind] += 1

    def call(self, verb: str, at: float) -> Disorder:
        """What becomes of a call that is made at a time of the life."""
        chance, fired = self._chance, self.fired
        fired.passed[verb] += 1
        there, back = chance.uniform(50e-6, 300e-6), chance.uniform(50e-6, 300e-6)
        if at > self._until:
            return Disorder(there, back)
        for crash in self._crashes:
            point, armed_at = crash
            if at >= armed_at and point.partition(" ")[2] == verb:
                self._crashes.remove(crash)
                self.count(Kind.CRASH)
                fired.points[point] += 1
                return Disorder(there, back, crash=point)
        if chance.random() < self._slow:
            seconds = chance.choice(SLOW_SECONDS)
            if chance.random() < 0.5:
                self.count(Kind.SLOW_THERE)
                return Disorder(there + seconds, back)
            self.count(Kind.SLOW_BACK)
            return Disorder(there, back + seconds)
        if chance.random() < self._refused:
            self.count(Kind.REFUSED)
            return Disorder(there, back, refused=True)
        if chance.random() < self._unanswered:
            self.count(Kind.UNANSWERED)
            return Disorder(there, back, unanswered=True)
        return Disorder(there, back)

    def signal(self, at: float) -> list[float]:
        """After how many seconds a signal arrives, each time that it does."""
        chance = self._chance
        delays = [chance.uniform(50e-6, 300e-6)]
        if at > self._until:
            return delays
        if chance.random() < self._lost:
            self.count(Kind.SIGNAL_LOST)
            return []
        if chance.random() < self._late:
            self.count(Kind.SIGNAL_LATE)
            delays = [chance.uniform(0.01, 2.0)]
        if chance.random() < self._doubled:
            self.count(Kind.SIGNAL_DOUBLED)
            delays.append(chance.uniform(0.0, 0.5))
        return delays


CRASHES = 4  # planned for each seed
