"""The handlers' own record of their starts: which job, and when; written where the death of a process loses nothing.

Each process has a file of fixed records, of which a window is mapped into its memory. A start costs a fraction of a
microsecond, and is the kernel's to keep from then on.
"""

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

FOLDER = "HORAE_BENCH_RECORDS"  # the environment variable that says where to record

_RECORD = Struct("<Qq")  # the number of the job, the wall clock in nanoseconds
_WINDOW = 1024 * 1024  # bytes that are mapped at a time, so that a long run does not grow its process
_pack_into, _now = _RECORD.pack_into, time.time_ns


class Recorder:
    """Writes the starts of one process."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / f"{os.getpid()}.starts", os.O_RDWR | os.O_CREAT)
        self._windows = 0
        self._turn()

    def write(self, number: int) -> None:
        """A handler of this job starts now."""
        if self._at == _WINDOW:
            self._turn()
        _pack_into(self._window, self._at, number, _now())
        self._at += _RECORD.size

    def _turn(self) -> None:
        """Map the next part of the file."""
        end = (self._windows + 1) * _WINDOW
        os.ftruncate(self._file, end)
        self._window = mmap.mmap(self._file, _WINDOW, offset=end - _WINDOW)
        self._windows += 1
        self._at = 0


def count_starts(folder: Path) -> int:
    """How many starts were recorded so far; quick, however many there are."""
    return sum(_count(path) for path in folder.glob("*.starts"))


def read_starts(folder: Path) -> Iterator[tuple[int, int]]:
    """Every start that was recorded, process by process: the number of the job, and the wall clock in nanoseconds."""
    for path in sorted(folder.glob("*.starts")):
        with path.open("rb") as file:
            while window := file.read(_WINDOW):
                for number, at in _RECORD.iter_unpack(window):
                    if not at:
                        break  # a window is filled from its beginning
                    yield number, at


def _count(path: Path) -> int:
    """All windows but the last are full, and that one up to the first record without a time."""
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
