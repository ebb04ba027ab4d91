"""Draws the faults of one simulated life from its seed, and counts those that occurred."""

import inspect
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from horae.ports.events import EventLog
from horae.ports.reader import Reader
from horae.ports.store import Store
from tests.acts import ACTS
from tests.memory_queue import Mischief


def verbs_of(port: type) -> tuple[str, ...]:
    """The asynchronous methods of a port, except for opening and closing."""
    asked = [name for name, member in vars(port).items() if inspect.iscoroutinefunction(member)]
    return tuple(name for name in asked if name not in ("open", "close"))


# A host can crash before each verb of the store and after each; `apply` counts as the acts that are applied.
WRITES = (*(verb for verb in verbs_of(Store) if verb != "apply"), *(f"apply {act}" for act in ACTS))
READS = (*verbs_of(Reader), *(f"events.{verb}" for verb in verbs_of(EventLog)))
VERBS = WRITES + READS
COMMON = frozenset(  # called often in every life; at any other verb, a planned crash comes with the first call
    {"time", "beat", "orphans", "tidy", "stops", "plannable", "claim", "start", "settle", "create", "jobs", "runs"}
    | {"apply register", "apply bury", "apply fire", "apply change", "apply change_one_shot", "apply park"}
    | {"apply request_stop", "records"}
)


def points_of(verbs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{side} {verb}" for verb in verbs for side in ("before", "after"))


POINTS = points_of(VERBS)

FROZEN_SECONDS = (1.0, 3.0, 5.0, 5.7, 7.0, 10.0)  # the lease is in doubt from 4.8 s on, and lost from 6 s on
SLOW_SECONDS = (0.02, 0.3, 1.5, 3.0)
DOWN_SECONDS = (0.5, 1.5, 3.5, 5.5)


class Kind(StrEnum):
    """The kinds of faults."""

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
    QUEUE_EMPTIED = "queue emptied"
    QUEUE_DOWN = "queue down"


@dataclass
class Fired:
    """Counts of what occurred."""

    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)  # crashes at each
    passed: Counter[str] = field(default_factory=Counter)  # calls of each verb

    def add(self, other: "Fired") -> None:
        self.faults += other.faults
        self.points += other.points
        self.passed += other.passed


@dataclass(frozen=True)
class CallFate:
    """What happens to one call."""

    there: float  # seconds on its way to the store
    back: float
    refused: bool = False
    unanswered: bool = False
    crash: str | None = None  # the point


class Faults:
    """Decides the fate of each call and signal; the same seed decides the same."""

    def __init__(self, seed: int, *, until: float) -> None:
        self._chance = random.Random(f"{seed} faults")
        self._until = until  # seconds after which there are no more faults
        self.fired = Fired()
        self.on_fault: Callable[[Kind], None] = lambda kind: None  # set by the owner of the history
        self._crashes: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
        for point, armed_at in self._planned_crashes(seed):
            self._crashes[point.partition(" ")[2]].append((point, armed_at))
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
        self._queue = random.Random(f"{seed} queue")  # of its own, so that other faults are as without a queue
        self.emptied = sorted(self._queue.uniform(1.0, until) for _ in range(2))
        self.queue_outages = sorted(self._queue.uniform(1.0, until) for _ in range(self._queue.choice((0, 1, 2))))
        self.queue = Mischief(
            lost=self._queue.choice((0.0, 0.1, 0.5)),
            doubled=self._queue.choice((0.0, 0.2, 0.5)),
            late=self._queue.choice((0.0, 0.2, 0.5)),
            shuffled=self._queue.random() < 0.5,
        )

    def _planned_crashes(self, seed: int) -> Iterator[tuple[str, float]]:
        """Yield crash points in turn, so that consecutive seeds reach all of them, and from when on each is armed."""
        for verbs, crashes in CRASHES:
            points = points_of(verbs)
            for number in range(crashes):
                # spread, because of two points around one verb the first might leave no host for the second
                point = points[(seed + number * (len(points) // crashes)) % len(points)]
                armed_at = self._chance.uniform(0.0, 0.6 * self._until)
                yield point, armed_at if point.partition(" ")[2] in COMMON else 0.0

    def _times(self, *counts: int) -> list[float]:
        return sorted(self._chance.uniform(1.0, self._until) for _ in range(self._chance.choice(counts)))

    def choose(self, among: tuple[float, ...]) -> float:
        return self._chance.choice(among)

    def pick(self, count: int) -> int:
        """Choose an index."""
        return self._chance.randrange(count)

    def count(self, kind: Kind) -> None:
        self.fired.faults[kind] += 1

    def call(self, verb: str, at: float) -> CallFate:
        """Decide what happens to a call."""
        chance, fired = self._chance, self.fired
        fired.passed[verb] += 1
        there, back = chance.uniform(50e-6, 300e-6), chance.uniform(50e-6, 300e-6)
        if at > self._until:
            return CallFate(there, back)
        if planned := self._crashes.get(verb):
            for crash in planned:
                point, armed_at = crash
                if at >= armed_at:
                    planned.remove(crash)
                    self.count(Kind.CRASH)
                    fired.points[point] += 1
                    return CallFate(there, back, crash=point)
        if chance.random() < self._slow:
            seconds = chance.choice(SLOW_SECONDS)
            if chance.random() < 0.5:
                self._record(Kind.SLOW_THERE)
                return CallFate(there + seconds, back)
            self._record(Kind.SLOW_BACK)
            return CallFate(there, back + seconds)
        if chance.random() < self._refused:
            self._record(Kind.REFUSED)
            return CallFate(there, back, refused=True)
        if chance.random() < self._unanswered:
            self._record(Kind.UNANSWERED)
            return CallFate(there, back, unanswered=True)
        return CallFate(there, back)

    def _record(self, kind: Kind) -> None:
        self.count(kind)
        self.on_fault(kind)

    def signal(self, at: float) -> list[float]:
        """Return the delays after which a signal arrives: none if it is lost, two if it is doubled."""
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


CRASHES = ((WRITES, 4), (READS, 1))  # how many are planned for each seed, and around what
