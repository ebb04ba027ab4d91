"""Writes and reads the files of a recorded history, and provides the clock that all its processes share."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from horae.core.errors import Invalid
from horae.proof.checking.history.records import Line

EPOCH = "HORAE_RECORD_EPOCH"  # the environment variable with the start of the shared clock

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def steady_clock() -> Callable[[], float]:
    """Return a clock that starts at the time of this machine and never jumps.

    Its epoch is put into the environment, so that child processes share the clock.
    """
    epoch = float(os.environ.setdefault(EPOCH, repr(time.time() - time.monotonic())))
    return lambda: epoch + time.monotonic()


class Recorder:
    """Appends records to a file that several processes may share; each call is a single write."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """Open the file; with `durable`, records are on the disk when `write` returns."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._durable = durable

    def write(self, *records: Line) -> None:
        line = b"".join(_ENCODER.encode(record) + b"\n" for record in records)
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes were recorded")
        if self._durable:
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(*paths: Path) -> Iterator[Line]:
    """Yield every record of some files; a line without an end is still being written and left out."""
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _decoded(line, path, number)


def _decoded(line: bytes, path: Path, number: int) -> Line:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as exc:
        raise Invalid(f"{path}, line {number}, is not a record of a history: {exc}") from exc
