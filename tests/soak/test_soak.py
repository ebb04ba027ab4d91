"""`make soak` stops cleanly: no process and no folder is left."""

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
    """The folder of temporary files: with a short path, for sockets, and readable for the user that runs PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="hs-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_soak_that_is_told_to_stop_leaves_nothing_behind(scratch: Path, tmp_path: Path, number: int) -> None:
    output = tmp_path / "output"
    with output.open("wb") as stream:
        soak = subprocess.Popen(
            [sys.executable, "-m", "tests.soak", "--minutes", "5", "--seeds", "100000"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=stream,
            stderr=stream,
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
