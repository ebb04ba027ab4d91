"""Tasks that run in processes; at the top of a module, so that those can import them."""

import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from horae import Fatal, Horae, Run

app = Horae()


@app.task("square", cpu=True)
def square(number: int) -> dict[str, int]:
    return {"square": number * number, "pid": os.getpid()}


@app.task("same", cpu=True)
def same(value: object) -> object:
    return value


@app.task("tell", cpu=True)
def tell(run: Run) -> str:
    run.log.info("from %s", "afar", part=1)
    run.progress(0.25)
    run.progress(1)
    print("this is not for the pipe")
    return f"{run.id} {run.attempt} {run.fence}"


@app.task("tell.process", cpu=True)
def tell_secret(run: Run, token: str, plain: str = "") -> dict[str, str]:
    run.log.info("my token is %s", token)
    return {"token": token, "plain": plain}


@app.task("crash", cpu=True)
def crash(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)


@app.task("fault", cpu=True)
def fault(kind: str) -> object:
    if kind == "fatal":
        raise Fatal("never")
    if kind == "exit":
        sys.exit(1)
    if kind == "odd":
        return object()
    raise ValueError("no good")


@app.task("spin", cpu=True)
def spin(note: str, *, deaf: bool = False, child: bool = False) -> None:
    """Work forever; the file records the process ids, and whether the clean-up ran."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if child:
        pids.append(subprocess.Popen(["sleep", "1000"]).pid)
    try:
        Path(note).write_text(" ".join(map(str, pids)))  # whoever reads it may stop us at once
        while True:
            time.sleep(0.01)
    finally:
        Path(note + ".clean").touch()


@app.task("flood", cpu=True)
def flood(run: Run) -> None:
    for number in range(200_000):
        run.log.info("line %d", number)
        run.progress(number / 200_000)


@app.task("fork", cpu=True)
def fork(note: str) -> str:
    """Return twice: in the process that was asked, and in a child that it forked."""
    child = os.fork()
    if child == 0:
        time.sleep(0.1)
        return "child"
    Path(note).write_text(str(child))
    return "parent"


@app.task("garble", cpu=True)
def garble() -> None:
    """Write to whatever is open."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"garbage")
    time.sleep(10)


@app.task("murmur", cpu=True)
def murmur(run: Run) -> None:
    """Leave a thread behind that goes on logging."""

    def go_on() -> None:
        while True:
            run.log.info("still here")
            run.progress(1)

    threading.Thread(target=go_on, daemon=True).start()


@app.task("nap", cpu=True)
def nap(run: Run, seconds: float) -> str:
    time.sleep(seconds)
    run.log.info("rested")
    return "rested"


@app.task("recurse", cpu=True)
def recurse(depth: int = 0) -> int:
    return recurse(depth + 1)


@app.task("hog", cpu=True)
def hog(megabytes: int) -> int:
    """Take memory without end, up to a limit that is set here."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * 1_000_000,) * 2)
    taken = []
    while True:
        taken.append(bytes(10_000_000))


@app.task("expendable", cpu=True)
def expendable() -> str:
    return Path("/proc/self/oom_score_adj").read_text().strip()


@app.task("later", cpu=True)
async def later() -> str:
    return "also coroutines"


def cpu_whose(run: Run, day: str, password: str = "") -> list[Any]:
    assert password == "hush"
    return [run.owner, dict(run.params)]


def speak(word: str) -> None:
    library = logging.getLogger("some.library")
    library.debug("too low")
    library.info("an %s", word)
    try:
        raise ValueError(word)
    except ValueError:
        library.exception("it broke")


def cpu_parent() -> None:
    square.handle("job_01a1e1aafe8a75908af42505e25a5a66").result_sync(timeout=20)
