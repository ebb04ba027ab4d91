"""Tasks that misbehave, each in its own way and for a limited time, beside those of `tasks`."""

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from horae import Horae, RetryAfter, Run
from tests.system.tasks import app as tasks
from tests.system.tasks import note

app: Horae = tasks
LONG_SECONDS = 60.0  # longer than any test waits


# --- that do not end


@app.task("hostile.deaf_async")
async def deaf_async() -> None:
    """Ignore every cancellation."""
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)


@app.task("hostile.deaf_thread")
def deaf_thread() -> None:
    """Never check whether to stop."""
    time.sleep(20)


@app.task("hostile.deaf_process", cpu=True)
def deaf_process(run: Run) -> None:
    """Ignore SIGTERM, also in a child process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_SECONDS})"])
    note("START", run, f"{os.getpid()} {child.pid}")
    time.sleep(LONG_SECONDS)


@app.task("hostile.spin_thread")
def spin_thread(seconds: float) -> None:
    """Compute without a pause in a thread of the worker."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sum(range(1000))


@app.task("hostile.block_loop")
async def block_loop(run: Run, seconds: float, once: str) -> str:
    """Block the event loop of the node on the first attempt."""
    note("START", run, "blocker")
    if not Path(once).exists():
        Path(once).touch()
        time.sleep(seconds)  # noqa: ASYNC251 - that is what it is here for
    return "done"


# --- that leave


@app.task("hostile.exit_async")
async def exit_async() -> None:
    sys.exit(3)


@app.task("hostile.exit_within")
async def exit_within() -> None:
    """Exit from an asyncio task that the handler started."""

    async def leave() -> None:
        await asyncio.sleep(0.01)
        sys.exit("from within")

    await asyncio.gather(leave(), asyncio.sleep(0.1))


@app.task("hostile.stop_loop")
async def stop_loop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "it went on"


@app.task("hostile.exit_thread")
def exit_thread() -> None:
    sys.exit(3)


@app.task("hostile.kill_worker")
def kill_worker(run: Run) -> None:
    """Kill the worker."""
    note("START", run, "poison")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("hostile.kill_process", cpu=True)
def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("hostile.segfault", cpu=True)
def segfault() -> None:
    ctypes.string_at(0)


@app.task("hostile.fork_thread")
def fork_thread() -> str:
    """Fork, so that the handler returns twice."""
    return "child" if os.fork() == 0 else "parent"


# --- that take too much


@app.task("hostile.recurse_thread")
def recurse_thread(depth: int = 0) -> int:
    return recurse_thread(depth + 1)


@app.task("hostile.recurse_process", cpu=True)
def recurse_process(depth: int = 0) -> int:
    return recurse_process(depth + 1)


@app.task("hostile.eat_memory", cpu=True)
def eat_memory(megabytes: int) -> None:
    """Allocate and write memory up to a limit."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * 1_000_000,) * 2)
    taken = []
    while True:
        taken.append(os.urandom(1000) * 10_000)


@app.task("hostile.eat_files", cpu=True)
def eat_files() -> None:
    """Open files without closing them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    while True:
        os.open(os.devnull, os.O_RDONLY)


@app.task("hostile.flood_thread")
def flood_thread(run: Run, lines: int) -> None:
    for number in range(lines):
        run.log.info("%d %s", number, "x" * 10_000)
        run.progress(number / lines)


@app.task("hostile.flood_process", cpu=True)
def flood_process(run: Run, lines: int) -> None:
    for number in range(lines):
        run.log.info("%d %s", number, "x" * 10_000)
        run.progress(number / lines)


@app.task("hostile.large_result")
async def large_result(megabytes: int) -> str:
    return "x" * (megabytes * 1_000_000)


@app.task("hostile.deep_result")
async def deep_result(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


# --- that raise odd things


class Unprintable(Exception):
    def __str__(self) -> str:
        sys.exit("not even that")


@app.task("hostile.generator_exit")
async def generator_exit() -> None:
    raise GeneratorExit


@app.task("hostile.unprintable")
def unprintable() -> None:
    raise Unprintable


@app.task("hostile.retry_never")
async def retry_never() -> None:
    raise RetryAfter(float("inf"))
