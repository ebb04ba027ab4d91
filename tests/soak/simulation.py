"""The simulated part of `make soak`: thousands of lives in virtual time, each from a seed that replays it.

Run as `python -m tests.soak.simulation [--seeds 3000] [--seconds 560] [--first N]`; ends with 1 when a promise was
broken, a crash point was never met, or the time was too short for all seeds.
"""

import argparse
import os
import sys

from tests.simulation.campaign import Report, campaign

TOLD_EVERY = 500  # seeds


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3000)
    options.add_argument("--seconds", type=float, default=560.0)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()

    def told(report: Report) -> None:
        if report.seeds % TOLD_EVERY == 0:
            print(f"{report.seeds} seeds, {len(report.failures)} of them failed", flush=True)

    report = campaign(given.first, given.seeds, processes=given.processes, seconds=given.seconds, told=told)
    print("\n".join(report.lines()))
    if report.seeds < given.seeds:
        print(f"WRONG: only {report.seeds} of {given.seeds} seeds in {given.seconds:g} s")
    return 0 if report.sound and report.seeds >= given.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
