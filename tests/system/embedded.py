"""Nodes inside the server processes of a web application: each job runs once."""

import subprocess
import sys
import time
from collections import Counter

import httpx2

from tests.live import free_port
from tests.system.cluster import Cluster, Server
from tests.system.on_time import percentile
from tests.system.waiting import eventually

ALL = frozenset({"api", "planner", "worker"})
READY_SECONDS = 90.0  # each process imports everything
EARLIEST = -0.001  # seconds


def serve_web(cluster: Cluster, processes: int) -> Server:
    """Run the web application with `uvicorn --workers N`; all processes are ready."""
    port = free_port()
    log = cluster.folder / "web.log"
    workers = ["--workers", str(processes), "--timeout-worker-healthcheck", "60"]  # a busy machine is no dead process
    command = [sys.executable, "-m", "uvicorn", "tests.system.web:api", "--port", str(port), *workers]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            cwd=cluster.folder,
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(name="web", process=process, log=log, roles=ALL, url=f"http://127.0.0.1:{port}/horae")
    cluster.servers.append(server)
    cluster.ready(server, within=READY_SECONDS)
    eventually(
        lambda: len(cluster.rest.get("/v1/workers")["items"]) == processes, "every process works", within=READY_SECONDS
    )
    return server


def check_once_a_second(cluster: Cluster, *, seconds: int) -> str:
    """Check that the declared schedule runs once per second by the effect log; return the lateness."""
    [job] = cluster.rest.get("/v1/jobs", key="tick")["items"]
    first = int(time.time()) + 2
    wanted = [float(first + place) for place in range(seconds)]
    eventually(
        lambda: any(start.due >= wanted[-1] for start in cluster.effects.starts(job["id"])),
        f"the last of {seconds} seconds has its run",
        within=seconds + 20,
    )
    starts = [start for start in cluster.effects.starts(job["id"]) if wanted[0] <= start.due <= wanted[-1]]
    assert sorted(start.due for start in starts) == wanted, "a second is missing or doubled"
    late = [start.lateness for start in starts]
    assert min(late) >= EARLIEST, f"started {-min(late) * 1000:.1f} ms early"
    shares = sorted(Counter(start.pid for start in starts).values(), reverse=True)
    p50, p99 = (percentile(late, percent) * 1000 for percent in (50, 99))
    return f"{len(starts)} runs in {len(shares)} processes ({shares}), p50 {p50:.1f}, p99 {p99:.1f} ms late"


def check_requests_submit(cluster: Cluster, server: Server, *, times: int) -> None:
    """Check that request handlers submit jobs and get their results, and that each runs once."""
    assert server.url is not None
    base = server.url.removesuffix("/horae")
    with httpx2.Client(trust_env=False, timeout=30) as client:
        answers = [client.post(f"{base}/greet/guest-{place}").json() for place in range(times)]
    assert [answer["says"] for answer in answers] == [f"hello, guest-{place}" for place in range(times)]
    runs = Counter(start.job for start in cluster.effects.starts() if start.label.startswith("guest-"))
    assert runs == Counter(answer["job"] for answer in answers)


def check_ends_in_order(cluster: Cluster, server: Server, *, within: float) -> float:
    """Check that SIGTERM ends the server and its nodes despite an open event stream; return the seconds."""
    with (
        httpx2.Client(trust_env=False, timeout=30) as client,
        client.stream("GET", f"{server.url}/v1/events") as stream,
    ):
        assert stream.status_code == 200
        began = time.monotonic()
        server.terminate()
        server.wait(within)
    return time.monotonic() - began
