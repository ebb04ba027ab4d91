"""Tasks of an application that runs inside Lambda."""

import asyncio
import os
import time
from pathlib import Path

from horae import Horae, Run

app = Horae()


def note(what: str) -> None:
    """Write a line where the test reads it."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{what}\n")


@app.task("add")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.task("note", max_retries=0)
def write(run: Run, what: str) -> None:
    """Leave a trace, from a thread."""
    note(f"{what} {os.getpid()}")


@app.task("sleep", max_retries=1)
async def sleep(seconds: float) -> None:
    """Take a while."""
    note(f"sleeps {time.time()}")
    await asyncio.sleep(seconds)
    note("slept")


@app.task("fail", max_retries=3)
async def fail() -> None:
    """Fail."""
    raise RuntimeError("no")
