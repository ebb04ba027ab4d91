"""The tasks of a benchmark; they only record their own start."""

import os
import threading
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from horae.app import Horae
from horae.proof.bench.requests import is_counted, write_usage_forever
from horae.proof.bench.start_recorder import FOLDER, StartRecorder
from horae.run import Run
from horae.runtime.supervisor import stop_with_parent

APP = "horae.proof.bench.tasks:app"
PARENT = "HORAE_BENCH_PARENT"  # the environment variable with the process id of the benchmark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000  # microseconds

app = Horae(name="horae.proof.bench")


@app.task("bench.warm_up")
async def warm_up() -> None:
    """Do nothing; these runs are not measured."""


@app.task("bench.once")
async def once(n: int) -> None:
    """Record the start of a one-shot with number `n`."""
    recorder().write(n)


@app.task("bench.slot")
async def slot(run: Run, n: int, first_us: int) -> None:
    """Record the start of a slot; `n` is the number of the first slot, at `first_us`, and one follows every second."""
    recorder().write(n + (micros(run.due_at) - first_us) // _SECOND)


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


@cache
def recorder() -> StartRecorder:
    """Return the recorder of this process."""
    return StartRecorder(Path(os.environ[FOLDER]))


if FOLDER in os.environ and is_counted(os.environ.get("HORAE_STORE", ""), os.environ.get("HORAE_QUEUE", "")):
    write_usage_forever(Path(os.environ[FOLDER]))
if PARENT in os.environ:  # so that nodes end when the benchmark is killed
    threading.Thread(target=stop_with_parent, args=(int(os.environ[PARENT]),), name="horae-parent", daemon=True).start()
