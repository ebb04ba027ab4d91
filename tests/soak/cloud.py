"""The soak of stores with a queue in front: real processes on DynamoDB and SQS, or PostgreSQL and Redis, under faults.

Run as `python -m tests.soak.cloud [--on dynamodb-sqs] [--minutes 8] [--real]`; exits with 1 on any violation.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.signals import exit_on_signal
from tests.system.cloud_campaign import REAL, WHEELS, CloudResult, as_often_as_promised, run_cloud_campaign

SHOWN = 20


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--on", choices=sorted(WHEELS), default="dynamodb-sqs")
    options.add_argument("--minutes", type=float, default=8.0, help="for how long at least")
    options.add_argument("--rate", type=float, default=20, help="jobs per second")
    options.add_argument("--real", action="store_true", help="on the servers of `make engines`")
    options.add_argument("--folder", type=Path, help="where the history and the logs are kept")
    given = options.parse_args()
    exit_on_signal()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="horae-cloud-"))
    folder.mkdir(parents=True, exist_ok=True)
    result = run_cloud_campaign(
        (REAL if given.real else WHEELS)[given.on],
        folder,
        seconds=given.minutes * 60,
        times=as_often_as_promised,
        per_second=given.rate,
        report=lambda line: print(line, flush=True),
        HORAE_DRAIN_SECONDS="3",  # shorter than some jobs, so that a restart releases runs
    )
    _print(result)
    if result.wrong or given.folder is not None:
        print(f"cloud: the history and the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if result.wrong else 0


def _print(result: CloudResult) -> None:
    print(result)
    for name, count in (*sorted(result.campaign.points.items()), *sorted(result.campaign.occurrences.items())):
        print(f"{name}: {count}")
    for line in result.wrong[:SHOWN]:
        print(f"WRONG: {line}")
    print(f"cloud: {'nothing' if not result.wrong else len(result.wrong)} wrong")


if __name__ == "__main__":
    sys.exit(main())
