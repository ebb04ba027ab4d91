"""Many lives: run on some processes, summed up in a report, and refused when a crash point was never met."""

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

CHUNK = 20  # seeds that a process lives in a row


@dataclass
class Report:
    """What a set of seeds showed."""

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
    def unmet(self) -> list[str]:
        """Crash points at which nobody crashed, and kinds of faults that never came."""
        points = [point for point in POINTS if not self.fired.points[point]]
        return points + [str(kind) for kind in Kind if not self.fired.faults[kind]]

    @property
    def sound(self) -> bool:
        return not self.failures and not self.unmet

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.seeds} seeds, {self.runs} runs (at least {self.fewest_runs} a seed),"
            f" {sum(self.fired.faults.values())} faults (at least {self.fewest_faults} a seed)"
        )
        yield "faults: " + ", ".join(f"{kind} {self.fired.faults[kind]}" for kind in Kind)
        yield "seen: " + ", ".join(f"{occurrence} {count}" for occurrence, count in sorted(self.occurrences.items()))
        yield "crashes: " + ", ".join(f"{point} {self.fired.points[point]}" for point in POINTS)
        for point in self.unmet:
            yield f"NEVER MET: {point}"
        for seed, wrong in sorted(self.failures.items()):
            yield f"FAILED: seed {seed}; replay it with: {replay(seed)}"
            yield from (f"    {each}" for each in wrong[:10])


def replay(seed: int) -> str:
    """The command that lives one life again, exactly."""
    return f"python -m tests.simulation --seed {seed}"


def live(seeds: Iterable[int]) -> Report:
    """Live some lives in this process."""
    report = Report()
    for seed in seeds:
        with _uncollected():
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
def _uncollected() -> Iterator[None]:
    """Spare a life the garbage collector, which takes a sixth of its time."""
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
    told: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Live so many lives on some processes, unless the time is over before."""
    report, deadline = Report(), None if seconds is None else time.monotonic() + seconds
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    with multiprocessing.Pool(processes, initializer=_begin) as pool:  # whose end is that of its processes
        lived = pool.imap_unordered(live, chunks)
        for _ in chunks:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                report.add(lived.next(left))
            except multiprocessing.TimeoutError:
                break
            told(report)
    return report


def _begin() -> None:
    """In each process: what is there stays, and whoever ends the campaign ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
