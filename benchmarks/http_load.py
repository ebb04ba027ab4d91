"""Measures the speed of the API: the real server on PostgreSQL with token checks, over kept connections.

    python -m benchmarks.http_load [--seconds S] [--processes P]

The API has processes of its own, beside one that plans and runs jobs, as in production. `wrk` finds the highest rate
where it is or can be installed, else a client of our own does. Response times are measured at half the guaranteed rate,
from the instant at which a request should have been sent, so that a slow answer does not hide the wait of the next one.
"""

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.http_pace import at_rate
from benchmarks.http_requests import Ask, Figures, Target, answer_to, ask_in_turn
from benchmarks.machine import cpu_seconds
from benchmarks.servers import install, postgres_address, postmaster
from tests.live import HORAE, STOP_SECONDS, environment, live_horae
from tests.postgres_server import scratch_schema

CONNECTIONS = 64
KNOWN_JOBS = 10_000  # that status is asked of
BATCH = 10_000  # jobs in one call, the most that the API takes
BATCH_CALLS = 16
BATCH_CONNECTIONS = 2
ALL_ACCEPTED = b'"rejected":0}'  # how the answer to a batch ends; to read all of it would take the server's time
CREATES_PER_S, READS_PER_S = 3_000, 5_000  # promised; waiting times are measured at half of it
JOB = {"task": "demo.sleep", "params": {"seconds": 0}}  # runs for no time, and writes no log
FAR = "2100-01-01T00:00:00Z"
IDLE_SECONDS = 120.0  # that a server may take to run what was created
SETTINGS = 'store = "{store}"\nauth = "jwt"\njwt_secret = "{secret}"\n'
SECRET = "a secret of a benchmark, on a loopback address"

SCRIPT = """
local requests, number = {{}}, 0
for line in io.lines("{lines}") do
  local method, path, body = line:match("^(%S+) (%S+) ?(.*)$")
  requests[#requests + 1] = wrk.format(method, path, {{
    ["Authorization"] = "Bearer {token}", ["Content-Type"] = "application/json" }}, body ~= "" and body or nil)
end
request = function()
  number = number % #requests + 1
  return requests[number]
end
done = function(summary, latency)
  local errors = summary.errors
  print(string.format('{{"requests": %d, "seconds": %f, "errors": %d, "p50_ms": %f, "p99_ms": %f}}', summary.requests,
    summary.duration / 1e6, errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the API.")
    parser.add_argument("--seconds", type=int, default=10, help="for each figure")
    parser.add_argument("--processes", type=int, default=1, help="of the API")
    options = parser.parse_args()
    figures = measure(postgres_address(), options.seconds, processes=options.processes)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


def measure(address: str, seconds: int, *, processes: int = 1) -> Figures:
    """Measure rates and response times of single creates (whose jobs run meanwhile), status reads and batches."""
    return uvloop.run(_measure(address, seconds, processes))


async def _measure(address: str, seconds: int, processes: int) -> Figures:
    async with _server(address, processes) as target:
        jobs = await _create_some(target)
        await _until_idle(target)
        create = [Ask(method="POST", path="/v1/jobs", body=json.dumps(JOB).encode())]
        kinds = {
            "create": (create, CREATES_PER_S),
            "job_status": ([Ask(method="GET", path=f"/v1/jobs/{job}/status") for job in jobs], READS_PER_S),
            "run": ([Ask(method="GET", path=f"/v1/runs/{job.replace('job', 'run')}") for job in jobs], READS_PER_S),
            "job": ([Ask(method="GET", path=f"/v1/jobs/{job}") for job in jobs], READS_PER_S),
        }
        figures: Figures = {"api_processes": processes, "worker_processes": 1}
        for name, (asks, promised) in kinds.items():
            paced = await at_rate(target, asks, promised // 2, seconds, connections=CONNECTIONS)
            await _until_idle(target)
            before = cpu_seconds(*target.pids)
            most = await _most(target, asks, seconds)
            spent = (cpu_seconds(*target.pids) - before) / most["requests"] * 1000
            at_half = {"offered_per_s": promised // 2, **paced}
            figures[name] = {**most, "cpu_s_per_1000": round(spent, 4), "at_half": at_half}
            await _until_idle(target)
        return figures | {"batch": await _batches(target)}


@asynccontextmanager
async def _server(address: str, processes: int) -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as name:
        folder = Path(name)
        async with scratch_schema(address) as store:
            (folder / "horae.toml").write_text(SETTINGS.format(store=store, secret=SECRET))
            _horae(folder, "db", "migrate")
            token = _horae(folder, "token", "create", "--sub", "bench", "--ttl", "1d").strip()
            with (
                _worker(folder) as worker,
                live_horae(folder, "serve", "--roles", "api", "--processes", str(processes)) as live,
            ):
                host, _, port = live.url.removeprefix("http://").partition(":")
                database = await postmaster(address)
                pids = [live.process.pid, worker, *([database] if database else [])]
                yield Target(host=host, port=int(port), token=token, pids=pids)


@contextmanager
def _worker(folder: Path) -> Iterator[int]:
    """Start the process that plans and runs jobs, without waiting until it is ready."""
    with (folder / "worker.log").open("wb") as log:
        command = [str(HORAE), "serve", "--roles", "planner,worker"]
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_SECONDS)


def _horae(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [HORAE, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"horae {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


# --- the most that it can do


async def _most(target: Target, asks: Sequence[Ask], seconds: int) -> Figures:
    """Send requests as fast as the server answers, on all connections."""
    if _wrk():
        return await asyncio.to_thread(_most_with_wrk, target, asks, seconds)
    end = time.perf_counter() + seconds
    return await ask_in_turn(target, asks, CONNECTIONS, lambda _: time.perf_counter() < end)


def _wrk() -> bool:
    if shutil.which("wrk") is None:
        try:
            install("wrk")
        except (RuntimeError, subprocess.CalledProcessError):
            return False
    return True


def _most_with_wrk(target: Target, asks: Sequence[Ask], seconds: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder:
        lines, script = Path(folder, "requests"), Path(folder, "load.lua")
        lines.write_text("".join(f"{ask.method} {ask.path} {ask.body.decode()}\n" for ask in asks))
        script.write_text(SCRIPT.format(lines=lines, token=target.token))
        command = [
            "wrk",
            "-t1",
            f"-c{CONNECTIONS}",
            f"-d{seconds}s",
            "-s",
            str(script),
            f"http://{target.host}:{target.port}",
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seen = json.loads(said.splitlines()[-1])
    return {
        "requests": seen["requests"],
        "per_s": round(seen["requests"] / seen["seconds"]),
        "errors": seen["errors"],
        "p50_ms": round(seen["p50_ms"], 2),
        "p99_ms": round(seen["p99_ms"], 2),
    }


# --- many in one call


async def _create_some(target: Target) -> list[str]:
    """Create jobs whose status can be read; return their ids."""
    answer = await answer_to(target, _batch_of(KNOWN_JOBS, JOB))
    return [item["id"] for item in answer["items"]]


async def _until_idle(target: Target) -> None:
    """Wait until all jobs have run, so that they do not affect the next figure."""
    deadline = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < deadline:
        queues = await answer_to(target, Ask(method="GET", path="/v1/queues"))
        if not any(queue["depth"] or queue["running"] for queue in queues["items"]):
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"the server was still running jobs after {IDLE_SECONDS:g} s")


async def _batches(target: Target) -> Figures:
    """Measure jobs per second in requests of the largest size; they are due far in the future and do not run."""
    began = time.perf_counter()
    figures = await ask_in_turn(
        target,
        [_batch_of(BATCH, JOB | {"schedule": FAR})],
        BATCH_CONNECTIONS,
        lambda number: number < BATCH_CALLS,
        lambda body: body.endswith(ALL_ACCEPTED),
    )
    seconds = time.perf_counter() - began
    return {**figures, "per_s": round(BATCH * BATCH_CALLS / seconds)}


def _batch_of(size: int, job: dict[str, Any]) -> Ask:
    line = json.dumps(job).encode() + b"\n"
    return Ask(method="POST", path="/v1/jobs/batch", body=line * size, kind="application/x-ndjson")


if __name__ == "__main__":
    main()
