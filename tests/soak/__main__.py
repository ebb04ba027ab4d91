"""`make soak`: every part of it side by side, for ten minutes; ends with 1 when any of them found something wrong."""

import subprocess
import sys
import threading
from typing import IO

PARTS = ("tests.soak.chaos", "tests.soak.simulation")


def main() -> int:
    processes = {
        part: subprocess.Popen(
            [sys.executable, "-m", part], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for part in PARTS
    }
    tellers = [threading.Thread(target=_pass_on, args=(part, process)) for part, process in processes.items()]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    codes = {part: process.wait() for part, process in processes.items()}
    for part, code in codes.items():
        print(f"{part}: {'good' if code == 0 else f'ended with {code}'}")
    return max(map(abs, codes.values()))


def _pass_on(part: str, process: subprocess.Popen[str]) -> None:
    """Show what a part says as it comes, with its name."""
    said: IO[str] | None = process.stdout
    assert said is not None
    for line in said:
        print(f"{part.rpartition('.')[2]:>10} | {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
