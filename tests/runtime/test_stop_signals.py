"""How a node is stopped: the first Ctrl-C lets it finish and says how to end it at once, the second does that."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.live import live_horae
from tests.runtime.test_supervisor import eventually

HINT = "Press Ctrl-C again to end at once"
ENDED_SECONDS = 5.0  # far below the drain time of 30

SLOW_TASKS = """
import asyncio, time
from horae import Horae

app = Horae()


@app.task
async def waits() -> None:
    print("begun", flush=True)
    await asyncio.sleep(60)


@app.task
async def blocks() -> None:
    print("begun", flush=True)
    time.sleep(60)
"""


@contextmanager
def busy_node(folder: Path, task: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`horae serve` in the middle of a task that takes a minute, and its log."""
    (folder / "slow.py").write_text(SLOW_TASKS)
    with live_horae(folder, "serve", "--app", "slow:app", *options) as live:
        httpx2.post(f"{live.url}/v1/jobs", json={"task": f"slow.{task}"}, trust_env=False).raise_for_status()
        log = folder / "horae.log"
        eventually(lambda: "begun" in log.read_text(), "the task has begun")
        yield live.process, log
        live.process.kill()


def test_the_first_ctrl_c_lets_runs_finish_and_says_how_to_end_at_once(tmp_path: Path) -> None:
    with busy_node(tmp_path, "waits") as (process, log):
        process.send_signal(signal.SIGINT)
        eventually(lambda: "draining" in log.read_text(), "it drains")
        assert HINT in log.read_text()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_SECONDS) == -signal.SIGINT


def test_a_second_ctrl_c_ends_a_node_whose_event_loop_is_blocked(tmp_path: Path) -> None:
    with busy_node(tmp_path, "blocks") as (process, _):
        process.send_signal(signal.SIGINT)
        eventually(lambda: _ends_on_ctrl_c(process.pid), "the first Ctrl-C was handled")
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_SECONDS) == -signal.SIGINT


def _ends_on_ctrl_c(pid: int) -> bool:
    """Whether the system, not the process, handles SIGINT."""
    [caught] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return not int(caught.split()[1], 16) & 1 << (signal.SIGINT - 1)


def test_a_second_sigterm_does_not_cut_a_drain_short(tmp_path: Path) -> None:
    with busy_node(tmp_path, "waits") as (process, log):
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            eventually(lambda: "draining" in log.read_text(), "it drains")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert HINT not in log.read_text(), "nobody is there to press a key"


def test_a_second_ctrl_c_ends_all_processes_of_a_supervisor(tmp_path: Path) -> None:
    with busy_node(tmp_path, "waits", "--processes", "2") as (process, log):
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        eventually(lambda: "draining" in log.read_text(), "it drains")
        assert log.read_text().count(HINT) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_SECONDS) == -signal.SIGINT
        _, alive = psutil.wait_procs(children, timeout=ENDED_SECONDS)
        assert not alive
