"""Simulates many lives on several processes and sums them up; fails if a crash point was never reached."""

import gc
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.faults import POINTS, Fired, Kind
from tests.simulation.life import simulate

CHUNK = 20  # seeds per task of a process


@dataclass
class Report:
    """The sum of some simulated lives."""

    seeds: int = 0
    runs: int = 0
    fewest_runs: int = 0
    fewest_faults: int = 0
    fired: Fired = field(default_factory=Fired)
    occurrences: Counter[str] = field(default_factory=Counter)  # what the histories had to survive
    failures: dict[int, Sequence[str]] = field(default_factory=dict)  # seed → what was wrong

    def add(self, other: "Report") -> None:
        self.fewest_runs = min(self.fewest_runs, other.fewest_runs) if self.seeds else other.fewest_runs
        self.fewest_faults = min(self.fewest_faults, other.fewest_faults) if self.seeds else other.fewest_faults
        self.seeds += other.seeds
        self.runs += other.runs
        self.fired.add(other.fired)
        self.occurrences += other.occurrences
        self.failures |= other.failures

    @property
    def unreached(self) -> list[str]:
        """Crash points and kinds of faults that never occurred."""
        points = [point for point in POINTS if not self.fired.points[point]]
        return points + [str(kind) for kind in Kind if not self.fired.faults[kind]]

    @property
    def sound(self) -> bool:
        return not self.failures and not self.unreached

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield (
            f"{self.seeds} seeds, {self.runs} runs (at least {self.fewest_runs} a seed),"
            f" {sum(self.fired.faults.values())} faults (at least {self.fewest_faults} a seed)"
        )
        yield "faults: " + ", ".join(f"{kind} {self.fired.faults[kind]}" for kind in Kind)
        yield "seen: " + ", ".join(f"{occurrence} {count}" for occurrence, count in sorted(self.occurrences.items()))
        yield "crashes: " + ", ".join(f"{point} {self.fired.points[point]}" for point in POINTS)
        for point in self.unreached:
            yield f"NEVER REACHED: {point}"
        for seed, wrong in sorted(self.failures.items()):
            yield f"FAILED: seed {seed}; replay it with: {replay(seed)}"
            yield from (f"    {each}" for each in wrong[:10])


def replay(seed: int) -> str:
    """The command that repeats one life exactly."""
    return f"python -m tests.simulation --seed {seed}"


def live(seeds: Iterable[int]) -> Report:
    """Simulate some lives in this process."""
    report = Report()
    for seed in seeds:
        with _without_gc():
            outcome = simulate(seed)
        faults = sum(outcome.fired.faults.values())
        report.add(
            Report(
                seeds=1,
                runs=outcome.runs,
                fewest_runs=outcome.runs,
                fewest_faults=faults,
                fired=outcome.fired,
                occurrences=Counter(outcome.occurrences),
                failures={seed: outcome.violations} if outcome.violations else {},
            )
        )
    return report


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector, which would take a sixth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def campaign(
    first: int,
    count: int,
    *,
    processes: int,
    seconds: float | None,
    on_progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Simulate lives on several processes, until all are done or the time is over."""
    report, deadline = Report(), None if seconds is None else time.monotonic() + seconds
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    with multiprocessing.Pool(processes, initializer=_begin) as pool:  # whose processes end with it
        lived = pool.imap_unordered(live, chunks)
        for _ in chunks:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                report.add(lived.next(left))
            except multiprocessing.TimeoutError:
                break
            on_progress(report)
    return report


def _begin() -> None:
    """Set up a process of the pool: it ends with the pool, and existing objects are not collected."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
