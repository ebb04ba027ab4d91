"""`make soak`: real processes and simulated ones side by side, for ten minutes; ends with 1 when either found a fault.

Told to stop (SIGTERM, or Ctrl-C) it lets its parts end everything that they have started, and leaves nothing behind.
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

ENDING_SECONDS = 60.0  # for a part that was told to stop; then it is killed


class Soak:
    """The parts, as long as any of them runs."""

    def __init__(self, parts: dict[str, Sequence[str]]) -> None:
        self.told: int | None = None  # the signal that ends it all
        self._give_up_at = float("inf")
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        for name, command in parts.items():
            self._processes[name] = _start(command)
        if self.told is not None:  # while they were being started
            self._signal(signal.SIGTERM)

    def run(self) -> dict[str, int]:
        """Until all have ended; their exit codes."""
        tellers = [threading.Thread(target=_pass_on, args=part, daemon=True) for part in self._processes.items()]
        for teller in tellers:
            teller.start()
        while any(process.poll() is None for process in self._processes.values()):
            if time.monotonic() > self._give_up_at:
                self._signal(signal.SIGKILL)
            time.sleep(0.2)
        for teller in tellers:
            teller.join(5)
        return {name: process.returncode for name, process in self._processes.items()}

    def _end(self, number: int, _: object) -> None:
        self.told = self.told or number
        self._give_up_at = time.monotonic() + ENDING_SECONDS
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    """A part in a session of its own: Ctrl-C reaches it by way of us alone."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _pass_on(name: str, process: subprocess.Popen[str]) -> None:
    """Show what a part says as it comes, with its name."""
    said: IO[str] | None = process.stdout
    assert said is not None
    for line in said:
        print(f"{name:>10} | {line}", end="", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=8.0, help="of faults on real processes")
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of those")
    options.add_argument("--seeds", type=int, default=3000, help="of simulated lives")
    options.add_argument("--first", type=int, default=0, help="the first of those")
    given = options.parse_args()
    began = time.monotonic()
    soak = Soak(
        {
            "chaos": ["tests.soak.chaos", f"--minutes={given.minutes}", f"--seed={given.seed}"],
            "simulation": ["tests.soak.simulation", f"--seeds={given.seeds}", f"--first={given.first}"],
        }
    )
    codes = soak.run()
    for name, code in codes.items():
        print(f"{name}: {'good' if code == 0 else f'ended with {code}'}")
    print(f"soak: {'good' if not any(codes.values()) else 'NOT GOOD'}, {(time.monotonic() - began) / 60:.1f} minutes")
    if soak.told is not None:
        return 128 + soak.told
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
