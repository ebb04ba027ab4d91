"""The chaos part of `make soak`: real processes on PostgreSQL under one fault after another.

Run as `python -m tests.soak.chaos [--minutes 8] [--seed N]`; exits with 1 on any violation.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from horae.proof.checking.history.records import Occurrence
from tests.soak.signals import exit_on_signal
from tests.system.fault_campaign import CampaignResult, run_campaign

ACCEPTED = 30_000
SLOTS = 1_500
WORKER_SECONDS = 30.0
STORE_SECONDS = 10.0
# Without these a run proves little.
REQUIRED = (Occurrence.LEASE_LOST.value, Occurrence.RESCUE.value, Occurrence.INFO_CALL.value)
SHOWN = 20


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=8.0)
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options.add_argument("--times", type=int, default=3, help="how often each kind of fault has to fire at least")
    options.add_argument(
        "--folder", type=Path, help="where the history and the logs are kept; else only those of a failed run"
    )
    given = options.parse_args()
    exit_on_signal()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="horae-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    keep = True  # unless nothing went wrong
    try:
        wrong = _soak(given, folder)
        keep = bool(wrong)
    except SystemExit:
        keep = False
        raise
    finally:
        if keep or given.folder is not None:
            print(f"chaos: the history and the logs are in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if wrong else 0


def _soak(given: argparse.Namespace, folder: Path) -> list[str]:
    """Run the campaign and print its result; return everything that was wrong."""
    print(f"chaos: {given.minutes:g} minutes, seed {given.seed}", flush=True)
    result = run_campaign(
        folder,
        seconds=given.minutes * 60,
        seed=given.seed,
        per_second=90,
        recurring=5,
        times=given.times,
        report=lambda line: print(line, flush=True),
        HORAE_DRAIN_SECONDS="3",  # shorter than some jobs, so that a restart releases runs
    )
    share = min(given.minutes / 8, 1)
    wrong = result.wrong + _missing(result, share, given.times)
    print(result)
    for name, count in (*sorted(result.points.items()), *sorted(result.occurrences.items())):
        print(f"{name}: {count}")
    for line in wrong[:SHOWN]:
        print(f"WRONG: {line}")
    print(f"chaos: {'nothing' if not wrong else len(wrong)} wrong, seed {given.seed}")
    return wrong


def _missing(result: CampaignResult, share: float, times: int) -> list[str]:
    """What the run lacks to prove anything, and what took too long."""
    shortages = [f"{name} fired {count} times" for name, count in result.fired.items() if count < times]
    shortages += [f"{occurrence} never occurred" for occurrence in REQUIRED if not result.occurrences[occurrence]]
    if result.accepted < ACCEPTED * share:
        shortages.append(f"only {result.accepted} jobs were accepted")
    if result.slots < SLOTS * share:
        shortages.append(f"only {result.slots} slots came")
    if max(result.worker_recovery, default=WORKER_SECONDS + 1) > WORKER_SECONDS:
        shortages.append(f"recovery after a worker's end took {result.worker_recovery} s")
    if max(result.store_recovery, default=STORE_SECONDS + 1) > STORE_SECONDS:
        shortages.append(f"recovery after the store's end took {result.store_recovery} s")
    return shortages


if __name__ == "__main__":
    sys.exit(main())
