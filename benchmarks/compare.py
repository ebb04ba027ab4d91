"""`python -m benchmarks.compare OTHER`: measures this clone and another one in turns on the same machine.

The speed of a machine changes within minutes, so that figures of two runs say little about two revisions. Each round
measures both, one right after the other and in changing order, and only the ratios count.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import watched
from benchmarks.measurements import Figures, horae_bench
from benchmarks.servers import postgres_address, rest
from tests.live import HORAE

WORK: dict[str, dict[str, object]] = {
    "now": {"mode": "now", "jobs": 200_000},
    "timed": {"mode": "timed", "rate": 10_000, "seconds": 15},
    "herd": {"mode": "herd", "jobs": 2_000},
    "cron": {"mode": "cron", "rate": 10_000, "seconds": 15},
}
HERE, THERE = "this", "other"


@dataclass(slots=True)
class Compared:
    """The figures of one work on one store, by clone."""

    here: list[Figures] = field(default_factory=list)
    there: list[Figures] = field(default_factory=list)

    def add(self, who: str, figures: Figures) -> None:
        (self.here if who == HERE else self.there).append(figures)

    def summary(self) -> dict[str, float]:
        """The medians of both clones, and the median of the ratios of each round."""
        measured = {"per_s": "completed_per_s", "cpu": "cpu_s_per_1000"}
        summary: dict[str, float] = {}
        for short, name in measured.items():
            here, there = ([float(each[name]) for each in side] for side in (self.here, self.there))
            ratios = [mine / theirs for mine, theirs in zip(here, there, strict=True) if theirs]
            summary |= {f"{short}_{HERE}": statistics.median(here), f"{short}_{THERE}": statistics.median(there)}
            summary[f"{short}_ratio"] = statistics.median(ratios) if ratios else float("nan")
        for who, side in ((HERE, self.here), (THERE, self.there)):
            summary[f"p99_{who}"] = statistics.median(each["lateness_ms"]["p99"] for each in side)
            summary[f"wrong_{who}"] = sum(each["lost"] + each["duplicated"] + each["early"] for each in side)
        return summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("other", type=Path, help="another clone, in which `make test` has set up .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="only what contains this text, such as 'sqlite'")
    options = parser.parse_args()
    programs = {HERE: HORAE, THERE: options.other.absolute() / ".venv" / "bin" / "horae"}
    with tempfile.TemporaryDirectory(prefix="horae-compare-") as folder:
        for name, store, work in _works(folder, options.only):
            summary = _compare(name, store, work, programs, options.rounds).summary()
            rounded = {key: round(value, 4) for key, value in summary.items()}
            sys.stdout.write(json.dumps({"work": name, **rounded}) + "\n")
            sys.stdout.flush()
    return 0


def _compare(name: str, store: str, work: dict[str, object], programs: dict[str, Path], rounds: int) -> Compared:
    compared = Compared()
    for turn in range(rounds):
        for who in (HERE, THERE) if turn % 2 else (THERE, HERE):
            if store.startswith("postgresql"):
                asyncio.run(rest(store))
            with watched() as seen:
                figures = horae_bench(store, program=programs[who], **work)
            compared.add(who, figures)
            shown = {key: figures[key] for key in ("completed_per_s", "cpu_s_per_1000", "lateness_ms")}
            sys.stderr.write(f"{name} {who} {json.dumps(shown | seen)}\n")
    return compared


def _works(folder: str, only: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    stores = {"postgresql": postgres_address, "sqlite": lambda: f"sqlite:///{folder}/horae.db"}
    for store, address in stores.items():
        for name, work in WORK.items():
            if only in f"{store} {name}":
                yield f"{store} {name}", address(), work


if __name__ == "__main__":
    sys.exit(main())
