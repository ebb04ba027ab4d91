"""The simulated part of `make soak`: thousands of lives in virtual time, each from a seed that replays it.

Run as `python -m tests.soak.simulation [--seeds 3000] [--seconds 680] [--first N]`; ends with 1 when a promise was
broken, a crash point was never met, or the time was too short for all seeds.
"""

import argparse
import os
import sys
import time

from tests.simulation.campaign import Report, campaign
from tests.soak.ending import end_in_order_when_told

TOLD_EVERY = 30.0  # seconds
NICENESS = 10  # the real processes beside it have promises to keep, and go first


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3000)
    options.add_argument("--seconds", type=float, default=680.0)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    end_in_order_when_told()
    os.nice(NICENESS)
    began = told_at = time.monotonic()
    print(f"{given.seeds} seeds from {given.first} on", flush=True)

    def tell(report: Report) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= TOLD_EVERY or report.seeds == given.seeds:
            told_at = now
            print(f"{now - began:6.1f} s  {report.seeds} seeds, failed: {sorted(report.failures)}", flush=True)

    report = campaign(given.first, given.seeds, processes=given.processes, seconds=given.seconds, told=tell)
    print("\n".join(report.lines()))
    if report.seeds < given.seeds:
        print(f"WRONG: only {report.seeds} of {given.seeds} seeds in {given.seconds:g} s")
    return 0 if report.sound and report.seeds >= given.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
