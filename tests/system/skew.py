"""A wrong wall clock for one process, by libfaketime; steady clocks are unaffected."""

from collections.abc import Mapping
from pathlib import Path

PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


def library() -> Path:
    """The path of libfaketime."""
    found = [path for place in PLACES for path in Path(place).glob("**/libfaketimeMT.so.1")]
    assert found, "no libfaketime: apt-get install faketime"
    return found[0]


class WallClock:
    """The wall clock of one process, which can be changed while it runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    @property
    def settings(self) -> Mapping[str, str]:
        """What the process needs in its environment.

        `time.sleep` does not work under this version of the library, and no node on PostgreSQL sleeps.
        """
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds; without, the file is read for each look at the clock
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else threads that wait for the interpreter wait for seconds
        }

    def jump(self, seconds: int) -> None:
        """Set how many seconds the clock is wrong from now on."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{seconds:+d}")
        beside.replace(self._file)

    def is_of(self, pid: int) -> bool:
        """Whether a process uses this clock."""
        process = Path(f"/proc/{pid}")
        follows = f"FAKETIME_TIMESTAMP_FILE={self._file}".encode() in (process / "environ").read_bytes().split(b"\0")
        return follows and str(library()) in (process / "maps").read_text()
