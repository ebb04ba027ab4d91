"""What a node without the API answers at HORAE_PROBE_PORT, and until when."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.live import HORAE, environment, free_port, live_horae
from tests.runtime.test_supervisor import eventually

READY = '"event": "ready"'  # in the log of a node
TASKS = """
import asyncio
from horae import Horae

app = Horae()


@app.task
async def waits() -> None:
    print("begun", flush=True)
    await asyncio.sleep(60)
"""


@contextmanager
def worker(folder: Path, *arguments: str, port: int) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A worker that answers probes at a port, and its log."""
    (folder / "slow.py").write_text(TASKS)
    log = folder / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HORAE, *(arguments or ("worker",)), "--app", "slow:app"],
            cwd=folder,
            env=environment() | {"HORAE_PROBE_PORT": str(port)},
            stdout=output,
            stderr=output,
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def answer(port: int, path: str) -> httpx2.Response:
    return httpx2.get(f"http://127.0.0.1:{port}{path}", trust_env=False)


def test_a_worker_answers_probes_and_nothing_else(tmp_path: Path) -> None:
    port = free_port()
    with worker(tmp_path, port=port) as (_, log):
        eventually(lambda: READY in log.read_text(), "it is ready")
        assert f"http://127.0.0.1:{port}" in log.read_text()
        assert answer(port, "/healthz").json() == {"status": "ok"}
        assert answer(port, "/readyz").json() == {"status": "ready"}
        assert "horae_runs_total" in answer(port, "/metrics").text
        for path in ("/v1/jobs", "/v1/workers", "/docs", "/openapi.json", "/"):
            assert answer(port, path).status_code == 404, path


def test_a_worker_that_drains_is_alive_but_not_ready_until_it_has_left(tmp_path: Path) -> None:
    port = free_port()
    with live_horae(tmp_path, "serve", "--roles", "api") as live, worker(tmp_path, port=port) as (process, log):
        eventually(lambda: READY in log.read_text(), "it is ready")
        httpx2.post(f"{live.url}/v1/jobs", json={"task": "slow.waits"}, trust_env=False).raise_for_status()
        eventually(lambda: "begun" in log.read_text(), "a task runs")
        process.send_signal(signal.SIGTERM)
        eventually(lambda: answer(port, "/readyz").status_code == 503, "it is not ready")
        assert answer(port, "/healthz").status_code == 200
        assert "horae_queue_depth" in answer(port, "/metrics").text
        assert process.poll() is None


def test_processes_of_one_worker_share_the_port_of_their_probes(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("serve", "--roles", "worker", "--processes", "2")
    with worker(tmp_path, *arguments, port=port) as (process, log):
        eventually(lambda: log.read_text().count(READY) == 2, "both are ready")
        assert answer(port, "/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_port_of_probes_that_is_in_use_is_explained(tmp_path: Path) -> None:
    with live_horae(tmp_path, "dev") as live:
        port = int(live.url.rpartition(":")[2])
        with worker(tmp_path, port=port) as (process, log):
            assert process.wait(30) == 2
            assert f"port {port} is in use" in log.read_text()
            assert "HORAE_PROBE_PORT" in log.read_text()


def test_a_node_with_the_api_answers_probes_at_its_own_port(tmp_path: Path) -> None:
    port = free_port()
    with live_horae(tmp_path, "serve", HORAE_PROBE_PORT=str(port)) as live:
        assert httpx2.get(f"{live.url}/readyz", trust_env=False).status_code == 200
        with httpx2.Client(trust_env=False) as client:
            try:
                client.get(f"http://127.0.0.1:{port}/healthz")
            except httpx2.ConnectError:
                return
        raise AssertionError("it listens at both ports")
