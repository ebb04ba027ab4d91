"""`make soak` ends in order: whoever stops it finds none of its processes and none of its folders."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.system.waiting import eventually

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where temporary folders go: short, as the path of a socket must be, and open to the user that runs PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="hs-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_soak_that_is_told_to_stop_leaves_nothing_behind(scratch: Path, tmp_path: Path, number: int) -> None:
    output = tmp_path / "output"
    with output.open("wb") as said:
        soak = subprocess.Popen(
            [sys.executable, "-m", "tests.soak", "--minutes", "5", "--seeds", "100000"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=said,
            stderr=said,
        )
    try:
        eventually(lambda: " s  " in output.read_text(), "a fault has been tried", within=120)
        processes = psutil.Process(soak.pid).children(recursive=True)
        assert len(processes) > 10, "the parts, their nodes, a PostgreSQL and simulated lives"
        soak.send_signal(number)
        assert soak.wait(90) == 128 + number, output.read_text()
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert not alive
        assert not list(scratch.iterdir())
    finally:
        soak.kill()
        soak.wait()
