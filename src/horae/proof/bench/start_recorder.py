"""Records the starts of handlers in files that survive the death of their process.

Each process has a file of fixed-size records and maps a window of it into memory. A record costs a fraction of a
microsecond, and the kernel keeps it from then on.
"""

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

FOLDER = "HORAE_BENCH_RECORDS"  # the environment variable with the folder of the records

_RECORD = Struct("<Qq")  # the number of the job, the wall clock in nanoseconds
_WINDOW = 1024 * 1024  # bytes that are mapped at a time, so that a long run does not grow its process
_pack_into, _now = _RECORD.pack_into, time.time_ns


class StartRecorder:
    """Records the starts in one process."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / f"{os.getpid()}.starts", os.O_RDWR | os.O_CREAT)
        self._windows = 0
        self._map_next_window()

    def write(self, number: int) -> None:
        """Record that a handler of this job starts now."""
        if self._at == _WINDOW:
            self._map_next_window()
        _pack_into(self._window, self._at, number, _now())
        self._at += _RECORD.size

    def _map_next_window(self) -> None:
        end = (self._windows + 1) * _WINDOW
        os.ftruncate(self._file, end)
        self._window = mmap.mmap(self._file, _WINDOW, offset=end - _WINDOW)
        self._windows += 1
        self._at = 0


def count_starts(folder: Path) -> int:
    """Return the number of recorded starts, quickly for any number."""
    return sum(_count(path) for path in folder.glob("*.starts"))


def read_starts(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield every recorded start, process by process: the number of the job and the wall clock in nanoseconds."""
    for path in sorted(folder.glob("*.starts")):
        with path.open("rb") as file:
            while window := file.read(_WINDOW):
                for number, at in _RECORD.iter_unpack(window):
                    if not at:
                        break  # the rest of the window is empty
                    yield number, at


def _count(path: Path) -> int:
    """The records of a file; all windows but the last are full, so that only the last is searched."""
    with path.open("rb") as file:
        last = max(os.fstat(file.fileno()).st_size // _WINDOW - 1, 0)
        low, high = 0, _WINDOW // _RECORD.size
        while low < high:
            middle = (low + high) // 2
            record = os.pread(file.fileno(), _RECORD.size, last * _WINDOW + middle * _RECORD.size)
            if len(record) == _RECORD.size and _RECORD.unpack(record)[1]:
                low = middle + 1
            else:
                high = middle
    return last * (_WINDOW // _RECORD.size) + low
