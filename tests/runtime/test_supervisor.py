"""Several processes that share a port: kept alive, stopped together."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import psutil

from tests.live import live_horae

DEADLINE_SECONDS = 30.0


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS:g} s: {what}"
        time.sleep(0.05)


def test_a_process_that_dies_is_replaced_and_all_end_together(tmp_path: Path) -> None:
    with live_horae(tmp_path, "serve", "--processes", "2") as live:
        parent = psutil.Process(live.process.pid)

        def workers() -> set[str]:
            items = httpx2.get(f"{live.url}/v1/workers", trust_env=False).json()["items"]
            return {item["name"].rpartition(":")[2] for item in items}

        eventually(lambda: len(workers()) == 2, "two processes joined")
        victim = workers().pop()
        psutil.Process(int(victim)).send_signal(signal.SIGKILL)
        eventually(lambda: len(workers() - {victim}) == 2, "another one took its place")
        children = parent.children(recursive=True)
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(DEADLINE_SECONDS) == 0
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive
