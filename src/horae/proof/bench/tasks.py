"""The tasks that a benchmark runs: they do nothing but record their own start."""

import os
import threading
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from horae.app import Horae
from horae.proof.bench.recorder import FOLDER, Recorder
from horae.run import Run
from horae.runtime.supervisor import stop_with_parent

APP = "horae.proof.bench.tasks:app"
PARENT = "HORAE_BENCH_PARENT"  # the environment variable with the process that a node ends with

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000  # microseconds

app = Horae(name="horae.proof.bench")


@app.task("bench.warm_up")
async def warm_up() -> None:
    """Runs before anything is measured, and is not recorded."""


@app.task("bench.once")
async def once(n: int) -> None:
    """A job that runs once, by its number."""
    recorder().write(n)


@app.task("bench.slot")
async def slot(run: Run, n: int, first_us: int) -> None:
    """A slot of a recurring job, which is due every second: `n` is the number of its first slot, at `first_us`."""
    due_us = (run.due_at - _EPOCH) // _MICROSECOND
    recorder().write(n + (due_us - first_us) // _SECOND)


@cache
def recorder() -> Recorder:
    """Of this process."""
    return Recorder(Path(os.environ[FOLDER]))


if PARENT in os.environ:  # whoever kills the benchmark itself shall not have to look for its nodes
    threading.Thread(target=stop_with_parent, args=(int(os.environ[PARENT]),), name="horae-parent", daemon=True).start()
