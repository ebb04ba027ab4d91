"""The simulated part of `make soak`: thousands of simulated clusters, each from a seed that replays it.

Run as `python -m tests.soak.simulation [--seeds 3000] [--seconds 900] [--first N]`; exits with 1 if a guarantee was
broken, a crash point was never reached, or the time was too short for all seeds.
"""

import argparse
import os
import sys
import time

from tests.simulation.campaign import Report, campaign
from tests.soak.signals import exit_on_signal

REPORT_SECONDS = 30.0  # seconds
NICENESS = 10  # the real processes beside it are judged by their lateness, and go first


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3000)
    options.add_argument("--seconds", type=float, default=900.0)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    exit_on_signal()
    os.nice(NICENESS)
    began = reported_at = time.monotonic()
    print(f"{given.seeds} seeds from {given.first} on", flush=True)

    def print_progress(report: Report) -> None:
        nonlocal reported_at
        now = time.monotonic()
        if now - reported_at >= REPORT_SECONDS or report.seeds == given.seeds:
            reported_at = now
            print(f"{now - began:6.1f} s  {report.seeds} seeds, failed: {sorted(report.failures)}", flush=True)

    report = campaign(
        given.first, given.seeds, processes=given.processes, seconds=given.seconds, on_progress=print_progress
    )
    print("\n".join(report.lines()))
    if report.seeds < given.seeds:
        print(f"WRONG: only {report.seeds} of {given.seeds} seeds in {given.seconds:g} s")
    return 0 if report.sound and report.seeds >= given.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
