"""What every job of a peer does: note its own start, by the very means of `horae bench`, so that it costs all the same.

An environment of a peer has no Horae in it; the recorder is a file of Horae's that needs nothing else.
"""

import os
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import ROOT

_NUMBERS = 1 << 64  # a record holds no negative ones: those of jobs that are not measured come from the end


def note(number: int) -> None:
    """Say that job `number` starts now."""
    _recorder_of(os.getpid()).write(number % _NUMBERS)


def count() -> int:
    """How many starts were noted."""
    return int(_means().count_starts(_folder()))


def processes() -> int:
    """How many processes noted a start."""
    return len(list(_folder().glob("*.starts")))


def starts() -> list[tuple[int, float]]:
    """The starts: number of the job, when."""
    return [(_signed(number), at_ns / 1e9) for number, at_ns in _means().read_starts(_folder())]


def _signed(number: int) -> int:
    return number - _NUMBERS if number >= _NUMBERS // 2 else number


@cache
def _recorder_of(_pid: int) -> Any:
    """Of this process: one that was forked has its own."""
    return _means().Recorder(_folder())


@cache
def _means() -> Any:
    spec = spec_from_file_location("horae_bench_recorder", ROOT / "src" / "horae" / "proof" / "bench" / "recorder.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder() -> Path:
    return Path(os.environ["BENCH_RECORDS"])


def payload(number: int) -> dict[str, int]:
    """The parameters of a job, as small as those of `horae bench`."""
    return {"n": number}
