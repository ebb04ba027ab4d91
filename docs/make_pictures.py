"""Draws the pictures of the documentation from the output of real commands: `python docs/make_pictures.py`."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console
from rich.text import Text

HORAE = Path(sys.executable).with_name("horae")
IMAGES = Path(__file__).with_name("images")
COLUMNS = 100
ADDRESSES = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
SCENES: dict[str, Sequence[Sequence[str]]] = {
    "jobs": (
        ("jobs", "ls"),
        ("runs", "ls", "--status", "succeeded", "--limit", "4"),
        ("run", "demo-flaky", "--follow"),
    ),
    "top": (("top", "--once"), ("queues",), ("workers",)),
    "explain": (("explain", "30 2 * * *", "--tz", "Europe/Paris", "--count", "3"),),
    "doctor": (("doctor",), ("check",)),
}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_horae(folder) as environment:
        for name, commands in SCENES.items():
            picture = Console(record=True, width=COLUMNS, file=StringIO())
            for command in commands:
                picture.print(
                    Text.assemble(("$ ", "bright_black"), ("horae " + " ".join(map(quoted, command)), "bold"))
                )
                picture.print(typed(command, folder, environment))
            write(IMAGES / f"{name}.svg", picture)


@contextmanager
def running_horae(folder: str) -> Iterator[dict[str, str]]:
    """Start Horae with its demo jobs, and wait until some of them have run."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
    process = subprocess.Popen(
        [HORAE, "dev", "--port", str(port)],
        cwd=folder,
        env=kept,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until_ready(url)
        time.sleep(20)  # demo jobs fire every few seconds
        yield kept | {"HORAE_URL": url, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            urlopen(f"{url}/readyz", timeout=2).close()
        except URLError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("horae dev was not ready within 30 s")


def typed(command: Sequence[str], folder: str, environment: dict[str, str]) -> Text:
    """Return what a command prints on both streams, with its colours."""
    done = subprocess.run(
        [HORAE, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return Text.from_ansi(done.stdout + "\n")


def write(path: Path, picture: Console) -> None:
    """Write a picture without web fonts and other addresses: it must not load anything from another server."""
    svg = picture.export_svg(title="horae")
    path.write_text(ADDRESSES.sub("", svg).replace("Fira Code", "ui-monospace"), "utf-8")


def quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
