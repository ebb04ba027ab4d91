"""DynamoDB, SQS and S3 for the tests: one emulator for each process that runs tests, gone when that process ends.

The emulator is a wheel. A shell between us reads a pipe that only this process holds, so it notices the end of it,
however that came about, and stops the server: even `kill -9` leaves nothing behind.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.request import urlopen

START_WITHIN = 20.0  # seconds; usually less than one

# $1 the folder of temporary files, the rest the server
SUPERVISOR = """
folder="$1"; shift
"$@" >"$folder/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -TERM $server
wait $server
rm -rf "$folder"
"""


@cache
def ministack_url() -> str:
    """The address of this process's emulator, which is started if it does not run yet."""
    port, folder = _free_port(), Path(tempfile.mkdtemp(prefix="horae-ministack-"))
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "LOG_LEVEL": "ERROR",
        "SERVICES": "dynamodb,sqs,s3",
        "TMPDIR": str(folder),
    }
    supervisor = subprocess.Popen(
        ["sh", "-c", SUPERVISOR, "supervisor", str(folder), sys.executable, "-m", "ministack"],
        stdin=subprocess.PIPE,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    _held.append(supervisor)
    url = f"http://127.0.0.1:{port}"
    _await_server(url, folder)
    return url


_held: list[subprocess.Popen[bytes]] = []  # their pipes stay open as long as this process lives


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_server(url: str, folder: Path) -> None:
    deadline = time.monotonic() + START_WITHIN
    while True:
        try:
            with urlopen(f"{url}/_ministack/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                log = (folder / "log").read_text()
                shutil.rmtree(folder, ignore_errors=True)
                raise RuntimeError(f"ministack did not start:\n{log}") from None
            time.sleep(0.02)
