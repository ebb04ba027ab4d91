"""The job of every peer: it records its own start exactly as `horae bench` does, so that recording costs the same.

Horae is not installed in the environment of a peer; the recorder is loaded from its file, which needs nothing else.
"""

import os
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import ROOT

_NUMBERS = 1 << 64  # a record holds no negative ones: those of jobs that are not measured come from the end


def note(number: int) -> None:
    """Record that job `number` starts now."""
    _recorder_of(os.getpid()).write(number % _NUMBERS)


def count() -> int:
    """The number of recorded starts."""
    return int(_recorder_module().count_starts(_folder()))


def processes() -> int:
    """The number of processes with a recorded start."""
    return len(list(_folder().glob("*.starts")))


def starts() -> list[tuple[int, float]]:
    """The recorded starts: number of the job, and time."""
    return [(_signed(number), at_ns / 1e9) for number, at_ns in _recorder_module().read_starts(_folder())]


def _signed(number: int) -> int:
    return number - _NUMBERS if number >= _NUMBERS // 2 else number


@cache
def _recorder_of(_pid: int) -> Any:
    """The recorder of this process; a forked one has its own."""
    return _recorder_module().StartRecorder(_folder())


@cache
def _recorder_module() -> Any:
    spec = spec_from_file_location(
        "horae_bench_recorder", ROOT / "src" / "horae" / "proof" / "bench" / "start_recorder.py"
    )
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
