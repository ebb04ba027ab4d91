"""The tasks of the tests: each records its own start and end in the effect log."""

import asyncio
import json
import os
import time
from typing import Any

from horae import Horae, Run

app = Horae()

EPOCH = float(os.environ.get("EFFECT_EPOCH") or time.time() - time.monotonic())  # the test's, however wrong this clock


def note(event: str, run: Run, label: str) -> None:
    """Append one line to the effect log with a single, atomic write."""
    line = json.dumps(
        {
            "event": event,
            "run": run.id,
            "job": run.job_id,
            "attempt": run.attempt,
            "fence": run.fence,
            "due": run.due_at.timestamp(),
            "at": time.monotonic() + EPOCH,
            "pid": os.getpid(),
            "label": label,
        }
    )
    descriptor = os.open(os.environ["EFFECT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@app.task("effects.work")
async def work(run: Run, seconds: float = 0.0, label: str = "") -> str:
    """Record the start, sleep, record the end."""
    note("START", run, label)
    if seconds:
        await asyncio.sleep(seconds)
    note("END", run, label)
    return label


@app.task("effects.thread")
def thread(run: Run, seconds: float = 0.0, label: str = "") -> str:
    """The same in a thread that checks whether to stop."""
    note("START", run, label)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not run.cancelled:
        time.sleep(0.02)
    note("STOPPED" if run.cancelled else "END", run, label)
    return label


@app.task("effects.process", cpu=True)
def process(run: Run, seconds: float = 0.0, label: str = "") -> str:
    """The same in a process that never checks."""
    note("START", run, label)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.02)
    note("END", run, label)
    return label


@app.task("effects.flaky")
async def flaky(run: Run, failures: int = 1, seconds: float = 0.0, label: str = "") -> int:
    """Fail on the first attempts."""
    note("START", run, label)
    await asyncio.sleep(seconds)
    note("END", run, label)
    if run.attempt <= failures:
        raise RuntimeError(f"attempt {run.attempt} fails")
    return run.attempt


@app.task("effects.params")
async def params(run: Run, value: Any = None) -> Any:
    """Return the parameters."""
    note("START", run, str(value))
    return value
