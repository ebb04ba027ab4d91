"""A real `horae` process for tests that need the whole product: started on a free port, stopped by its own id."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

HORAE = Path(sys.executable).with_name("horae")
READY_SECONDS = 30
STOP_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Where the process listens, and what a client of it needs in its environment."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        return environment() | {"HORAE_URL": self.url}


def environment() -> dict[str, str]:
    """This process's environment without settings of Horae, and with its commands on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
    return kept | {"PATH": f"{HORAE.parent}{os.pathsep}{kept.get('PATH', '')}"}


@contextmanager
def live_horae(folder: Path, *arguments: str, **settings: str) -> Iterator[Live]:
    """`horae ARGUMENTS --port …` in a folder of its own, ready; its output is shown if it is not."""
    port = free_port()
    output = folder / "horae.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [HORAE, *arguments, "--port", str(port)], cwd=folder, env=environment() | settings, stdout=log, stderr=log
        )
        live = Live(url=f"http://127.0.0.1:{port}", folder=folder, process=process)
        try:
            _wait_until_ready(live, output)
            yield live
        finally:
            _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(live: Live, output: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and live.process.poll() is None:
        try:
            if httpx2.get(f"{live.url}/readyz", trust_env=False).is_success:
                return
        except httpx2.TransportError:
            pass  # not listening yet
        time.sleep(0.05)
    raise AssertionError(f"horae was not ready within {READY_SECONDS} s:\n{output.read_text()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
