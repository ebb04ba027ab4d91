"""Servers that tests share: started once for a session, or for each of its workers, gone when the last user ends.

Every process that uses a server keeps a pipe open for writing. A small supervisor reads it, so it notices the end of
the last user however that came about, stops the server and removes its folder: even `kill -9` leaves nothing behind.
"""

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.live import free_port

START_WITHIN = 30.0  # seconds; those on a JVM take two when the machine is idle

# $1 the folder of it all; the others are the command of the server. It keeps nothing, so nothing is lost by SIGKILL.
SUPERVISOR = """
folder=$1
shift
"$@" >"$folder/log" 2>&1 </dev/null &
server=$!
cat "$folder/users" >/dev/null
kill -KILL $server
wait $server 2>/dev/null
rm -rf "$folder"
"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a server is started, and how one sees that it answers."""

    name: str
    scheme: str = "http"
    command: Callable[[Path, int], Sequence[str]]  # of its folder and port
    answers: Callable[[int], bool]
    environment: Callable[[Path, int], Mapping[str, str]] = field(default=lambda folder, port: {})


def url_of(recipe: Recipe, *, own: bool = False) -> str:
    """The address of this session's server, which is started if it does not run yet.

    `own`: each worker of the session gets one for itself, because the server does one thing at a time.
    """
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8))[:12]
    if own and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        session += f"-{worker}"
    base = Path(tempfile.gettempdir())
    folder = base / f"horae-{recipe.name}-{session}"
    with open(base / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not join(folder / "users"):
                shutil.rmtree(folder, ignore_errors=True)
                _start(recipe, folder)
        finally:
            Path(lock.name).unlink(missing_ok=True)
    return f"{recipe.scheme}://127.0.0.1:{(folder / 'port').read_text()}"


def _start(recipe: Recipe, folder: Path) -> None:
    folder.mkdir()
    port = free_port()
    (folder / "port").write_text(str(port))
    os.mkfifo(folder / "users")
    supervisor = subprocess.Popen(
        ["sh", "-c", SUPERVISOR, "supervisor", str(folder), *recipe.command(folder, port)],
        cwd=folder,
        env=plain_environment() | dict(recipe.environment(folder, port)),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # it outlives us, and whoever reads what we print waits for the end of that
    )
    supervisors.append(supervisor)
    wait_for(lambda: join(folder / "users"), recipe.name, folder / "log")
    wait_for(lambda: recipe.answers(port), recipe.name, folder / "log")


def plain_environment() -> dict[str, str]:
    """This process's environment without what would lead a client to another account, region or proxy."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HORAE_"))}


def join(pipe: Path) -> bool:
    """Hold the pipe open until this process ends; False when no supervisor reads it."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    _held.append(descriptor)
    return True


def wait_for(true: Callable[[], bool], name: str, log: Path, *, within: float = START_WITHIN) -> None:
    """Look again and again; what the server wrote is the message when it does not come true in time."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            said = log.read_text("utf-8", "replace") if log.exists() else "no log"
            raise RuntimeError(f"{name} did not start within {within:g} s:\n{said}")
        time.sleep(0.02)


_held: list[int] = []
supervisors: list[subprocess.Popen[bytes]] = []  # they outlive us; an object that nobody keeps would warn about that
