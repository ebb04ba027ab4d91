"""`make soak`: faults, attacks and simulated clusters side by side, for ten minutes; exits with 1 on any violation.

On SIGTERM or Ctrl-C it lets both parts stop everything that they have started.
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

ENDING_SECONDS = 60.0  # after which a part that was asked to stop is killed


class Soak:
    """The running parts of the soak."""

    def __init__(self, parts: dict[str, Sequence[str]]) -> None:
        self.stopped_by: int | None = None  # the first signal
        self._give_up_at = float("inf")
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        for name, command in parts.items():
            self._processes[name] = _start(command)
        if self.stopped_by is not None:  # while they were being started
            self._signal(signal.SIGTERM)

    def run(self) -> dict[str, int]:
        """Wait until all parts have ended; return their exit codes."""
        printers = [threading.Thread(target=_print_output, args=part, daemon=True) for part in self._processes.items()]
        for printer in printers:
            printer.start()
        while any(process.poll() is None for process in self._processes.values()):
            if time.monotonic() > self._give_up_at:
                self._signal(signal.SIGKILL)
            time.sleep(0.2)
        for printer in printers:
            printer.join(5)
        return {name: process.returncode for name, process in self._processes.items()}

    def _end(self, number: int, _: object) -> None:
        self.stopped_by = self.stopped_by or number
        self._give_up_at = time.monotonic() + ENDING_SECONDS
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a part in its own session, so that Ctrl-C reaches it only through this process."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _print_output(name: str, process: subprocess.Popen[str]) -> None:
    """Print the output of a part line by line, with its name."""
    output: IO[str] | None = process.stdout
    assert output is not None
    for line in output:
        print(f"{name:>10} | {line}", end="", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=8.0, help="of faults and attacks on real processes")
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of those")
    options.add_argument("--seeds", type=int, default=3000, help="of simulated lives")
    options.add_argument("--first", type=int, default=0, help="the first of those")
    given = options.parse_args()
    began = time.monotonic()
    soak = Soak(
        {
            "chaos": ["tests.soak.chaos", f"--minutes={given.minutes}", f"--seed={given.seed}"],
            "attacks": ["tests.soak.attacks", f"--minutes={given.minutes}", f"--seed={given.seed}"],
            "simulation": ["tests.soak.simulation", f"--seeds={given.seeds}", f"--first={given.first}"],
        }
    )
    codes = soak.run()
    for name, code in codes.items():
        print(f"{name}: {'passed' if code == 0 else f'failed with exit code {code}'}")
    print(f"soak: {'FAILED' if any(codes.values()) else 'passed'}, {(time.monotonic() - began) / 60:.1f} minutes")
    if soak.stopped_by is not None:
        return 128 + soak.stopped_by
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
