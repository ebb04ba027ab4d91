"""`python -m tests.simulation`: simulates one life in detail (`--seed`), or many (`--seeds`)."""

import argparse
import os
import sys
from pathlib import Path

from horae.proof.checking import Recorder
from tests.simulation.campaign import Report, campaign
from tests.simulation.life import EPOCH, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="simulate this one life and print its history")
    parser.add_argument("--history", type=Path, help="where to keep its history, for `horae check --history`")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=3000, help="how many")
    parser.add_argument("--seconds", type=float, help="stop after so many, even if seeds are left")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    return one(options.seed, options.history) if options.seed is not None else many(options)


def one(seed: int, history: Path | None) -> int:
    """Simulate one life and print its history."""
    outcome = simulate(seed)
    for line in sorted(outcome.lines, key=lambda line: line.at):
        print(f"{line.at - EPOCH:10.6f} {line}")
    if history is not None:
        with Recorder(history) as recorder:
            recorder.write(*outcome.lines)
    for violation in outcome.violations:
        print(f"WRONG: {violation}")
    print(f"seed {seed}: {outcome.runs} runs, {sum(outcome.fired.faults.values())} faults, {outcome.digest}")
    return 1 if outcome.violations else 0


def many(options: argparse.Namespace) -> int:
    """Simulate many lives and print a report."""

    def on_progress(report: Report) -> None:
        print(f"{report.seeds} seeds, failed: {sorted(report.failures)}", file=sys.stderr, flush=True)

    report = campaign(
        options.first, options.seeds, processes=options.processes, seconds=options.seconds, on_progress=on_progress
    )
    print("\n".join(report.lines()))
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
