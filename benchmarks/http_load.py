"""How fast the API is: the real server on PostgreSQL with tokens checked, asked over kept connections on this machine.

    python -m benchmarks.http_load [--seconds S] [--processes P] [--roles api,planner,worker]

`wrk` finds the highest rate where it is installed or can be, else a client of our own does. Waiting times are measured
at half the rate that is promised, from the instant at which a request should have been sent, so that a slow answer
does not keep the next request from being counted.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks.machine import cpu_seconds
from benchmarks.servers import install, postgres_address, postmaster
from tests.live import HORAE, environment, live_horae
from tests.postgres_server import scratch_schema

CONNECTIONS = 64
KNOWN_JOBS = 10_000  # that status is asked of
BATCH = 10_000  # jobs in one call, the most that the API takes
BATCH_CALLS = 16
BATCH_CONNECTIONS = 2
CREATES_PER_S, READS_PER_S = 3_000, 5_000  # promised; waiting times are measured at half of it
JOB = {"task": "demo.echo", "params": {"message": "hello"}}
FAR = "2100-01-01T00:00:00Z"
IDLE_SECONDS = 120.0  # that a server may take to run what was created
CLIENT_SECONDS = 300.0  # that clients may take altogether
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

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and the token that it lets in."""

    host: str
    port: int
    token: str
    pids: Sequence[int]  # the server's, and that of its database where it is on this machine

    def request(self, ask: Ask) -> bytes:
        head = (
            f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\n"
            f"Content-Type: {ask.kind}\r\nContent-Length: {len(ask.body)}\r\n\r\n"
        )
        return head.encode() + ask.body


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the API.")
    parser.add_argument("--seconds", type=int, default=10, help="for each figure")
    parser.add_argument("--processes", type=int, default=2, help="of the server")
    parser.add_argument("--roles", default="api,planner,worker", help="of the server")
    options = parser.parse_args()
    figures = measure(postgres_address(), options.seconds, processes=options.processes, roles=options.roles)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


def measure(address: str, seconds: int, *, processes: int = 2, roles: str = "api,planner,worker") -> Figures:
    """Rates and waiting times of single creates (which run meanwhile), status reads and batches."""
    return uvloop.run(_measure(address, seconds, processes, roles))


async def _measure(address: str, seconds: int, processes: int, roles: str) -> Figures:
    async with _server(address, processes, roles) as target:
        jobs = await _create_some(target)
        await _until_idle(target)
        create = [Ask(method="POST", path="/v1/jobs", body=json.dumps(JOB).encode())]
        kinds = {
            "create": (create, CREATES_PER_S),
            "job_status": ([Ask(method="GET", path=f"/v1/jobs/{job}/status") for job in jobs], READS_PER_S),
            "run": ([Ask(method="GET", path=f"/v1/runs/{job.replace('job', 'run')}") for job in jobs], READS_PER_S),
            "job": ([Ask(method="GET", path=f"/v1/jobs/{job}") for job in jobs], READS_PER_S),
        }
        figures: Figures = {"processes": processes, "roles": roles}
        for name, (asks, promised) in kinds.items():
            paced = await _open_loop(target, asks, promised // 2, seconds)
            await _until_idle(target)
            before = cpu_seconds(*target.pids)
            most = await _most(target, asks, seconds)
            spent = (cpu_seconds(*target.pids) - before) / most["requests"] * 1000
            at_half = {"offered_per_s": promised // 2, **paced}
            figures[name] = {**most, "cpu_s_per_1000": round(spent, 4), "at_half": at_half}
            await _until_idle(target)
        return figures | {"batch": await _batches(target)}


@asynccontextmanager
async def _server(address: str, processes: int, roles: str) -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as name:
        folder = Path(name)
        async with scratch_schema(address) as store:
            (folder / "horae.toml").write_text(SETTINGS.format(store=store, secret=SECRET))
            _horae(folder, "db", "migrate")
            token = _horae(folder, "token", "create", "--sub", "bench", "--ttl", "1d").strip()
            with live_horae(folder, "serve", "--roles", roles, "--processes", str(processes)) as live:
                host, _, port = live.url.removeprefix("http://").partition(":")
                database = await postmaster(address)
                pids = [live.process.pid, *([database] if database else [])]
                yield Target(host=host, port=int(port), token=token, pids=pids)


def _horae(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [HORAE, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"horae {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


# --- the most that it can do


async def _most(target: Target, asks: Sequence[Ask], seconds: int) -> Figures:
    """As many requests as the server answers, on all connections."""
    if _wrk():
        return await asyncio.to_thread(_most_with_wrk, target, asks, seconds)
    end = time.perf_counter() + seconds
    return await _clients(target, asks, CONNECTIONS, lambda _: 0.0 if time.perf_counter() < end else None)


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


# --- at a given rate


async def _open_loop(target: Target, asks: Sequence[Ask], rate: int, seconds: int) -> Figures:
    """Requests at instants that are spread evenly, whether the ones before were answered or not."""
    begin = time.perf_counter() + 0.2
    return await _clients(
        target, asks, CONNECTIONS, lambda number: begin + number / rate if number < rate * seconds else None
    )


async def _clients(
    target: Target, asks: Sequence[Ask], connections: int, when: Callable[[int], float | None]
) -> Figures:
    """Send requests, each at the time that `when` says of its number (0: at once), until it says None."""
    numbered = enumerate(cycle([target.request(ask) for ask in asks]))
    waits: list[float] = []
    errors = 0

    async def client() -> None:
        nonlocal errors
        connection = await _connect(target)
        for number, request in numbered:
            at = when(number)
            if at is None:
                break
            await asyncio.sleep(max(at - time.perf_counter(), 0))
            began = at or time.perf_counter()
            status, _ = await connection.ask(request)
            waits.append(time.perf_counter() - began)
            errors += status >= 400
        connection.close()

    began = time.perf_counter()
    async with asyncio.timeout(CLIENT_SECONDS):
        await asyncio.gather(*(client() for _ in range(connections)))
    seconds = time.perf_counter() - began
    waits.sort()
    return {
        "requests": len(waits),
        "per_s": round(len(waits) / seconds),
        "errors": errors,
        "p50_ms": round(waits[len(waits) // 2] * 1000, 2),
        "p99_ms": round(waits[len(waits) * 99 // 100] * 1000, 2),
        "max_ms": round(waits[-1] * 1000, 2),
    }


# --- many in one call


async def _create_some(target: Target) -> list[str]:
    """The ids of jobs that status can be asked of."""
    answer = await _answer(target, _batch_of(KNOWN_JOBS, JOB))
    return [item["id"] for item in answer["items"]]


async def _until_idle(target: Target) -> None:
    """Wait until the server has run what was created, so that this does not weigh on the next figure."""
    deadline = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < deadline:
        queues = await _answer(target, Ask(method="GET", path="/v1/queues"))
        if not any(queue["depth"] or queue["running"] for queue in queues["items"]):
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"the server was still running jobs after {IDLE_SECONDS:g} s")


async def _answer(target: Target, ask: Ask) -> Any:
    async with asyncio.timeout(IDLE_SECONDS):
        connection = await _connect(target)
        status, body = await connection.ask(target.request(ask))
        connection.close()
    if status != 200:
        raise RuntimeError(f"{ask.path} answered {status}: {body[:500]!r}")
    return json.loads(body)


async def _batches(target: Target) -> Figures:
    """Jobs a second in calls of the largest size; they are due far away, so that running them costs nothing here."""
    began = time.perf_counter()
    figures = await _clients(
        target,
        [_batch_of(BATCH, JOB | {"schedule": FAR})],
        BATCH_CONNECTIONS,
        lambda number: 0.0 if number < BATCH_CALLS else None,
    )
    seconds = time.perf_counter() - began
    return {**figures, "per_s": round(BATCH * BATCH_CALLS / seconds)}


def _batch_of(size: int, job: dict[str, Any]) -> Ask:
    line = json.dumps(job).encode() + b"\n"
    return Ask(method="POST", path="/v1/jobs/batch", body=line * size, kind="application/x-ndjson")


# --- one connection


async def _connect(target: Target) -> "Connection":
    _, connection = await asyncio.get_running_loop().create_connection(Connection, target.host, target.port)
    return connection


class Connection(asyncio.Protocol):
    """One request after another on one connection; understands as much of HTTP as our own server says."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        if len(self._received) >= end + 4 + length and self._answer is not None:
            body = bytes(self._received[end + 4 : end + 4 + length])
            self._received.clear()
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))


if __name__ == "__main__":
    main()
