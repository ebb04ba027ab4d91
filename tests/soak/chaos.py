"""The chaos part of `make soak`: minutes of real processes on PostgreSQL with one fault after the other.

Run as `python -m tests.soak.chaos [--minutes 8] [--seed N]`; ends with 1 when anything was wrong.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from horae.proof.checking.history.records import Occurrence
from tests.soak.ending import end_in_order_when_told
from tests.system.ordeal import Verdict, undergo

ACCEPTED = 30_000
SLOTS = 1_500
WORKER_SECONDS = 30.0
STORE_SECONDS = 10.0
OCCURS = (
    Occurrence.LEASE_LOST.value,
    Occurrence.RESCUE.value,
    Occurrence.INFO_CALL.value,
)  # without, a run proves little
SHOWN = 20


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=8.0)
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options.add_argument("--times", type=int, default=3, help="how often each kind of fault has to fire at least")
    options.add_argument(
        "--folder", type=Path, help="where the history and the logs are kept; else only those of a bad run are"
    )
    given = options.parse_args()
    end_in_order_when_told()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="horae-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    keep = True  # what went wrong has to be looked into
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
    """Undergo it, and tell; everything that was wrong."""
    print(f"chaos: {given.minutes:g} minutes, seed {given.seed}", flush=True)
    verdict = undergo(
        folder,
        seconds=given.minutes * 60,
        seed=given.seed,
        per_second=90,
        recurring=5,
        times=given.times,
        tell=lambda line: print(line, flush=True),
        HORAE_DRAIN_SECONDS="3",  # shorter than some jobs, so that a restart gives runs back
    )
    share = min(given.minutes / 8, 1)
    wrong = verdict.wrong + _missing(verdict, share, given.times)
    print(verdict)
    for name, count in (*sorted(verdict.points.items()), *sorted(verdict.occurrences.items())):
        print(f"{name}: {count}")
    for line in wrong[:SHOWN]:
        print(f"WRONG: {line}")
    print(f"chaos: {'nothing' if not wrong else len(wrong)} wrong, seed {given.seed}")
    return wrong


def _missing(verdict: Verdict, share: float, times: int) -> list[str]:
    """What the run was too short of to prove anything, and what took too long."""
    shortages = [f"{name} fired {count} times" for name, count in verdict.fired.items() if count < times]
    shortages += [f"{occurrence} never occurred" for occurrence in OCCURS if not verdict.occurrences[occurrence]]
    if verdict.accepted < ACCEPTED * share:
        shortages.append(f"only {verdict.accepted} jobs were accepted")
    if verdict.slots < SLOTS * share:
        shortages.append(f"only {verdict.slots} slots came")
    if max(verdict.worker_recovery, default=WORKER_SECONDS + 1) > WORKER_SECONDS:
        shortages.append(f"recovery after a worker's end took {verdict.worker_recovery} s")
    if max(verdict.store_recovery, default=STORE_SECONDS + 1) > STORE_SECONDS:
        shortages.append(f"recovery after the store's end took {verdict.store_recovery} s")
    return shortages


if __name__ == "__main__":
    sys.exit(main())
