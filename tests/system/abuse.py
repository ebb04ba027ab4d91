"""Attacks by hostile handlers and clients, and checks that the node and its other jobs survive them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

from tests.system.cluster import Cluster, Server
from tests.system.on_time import percentile
from tests.system.rest import Document, instant, run_of, timestamp
from tests.system.waiting import eventually

APP = "tests.system.hostile_tasks:app"
EARLIEST = -0.001  # seconds
SUCCEEDED = None  # instead of the type of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A hostile job and the expected record of it."""

    task: str
    error: str | None  # the type of the recorded error; None: it succeeds
    says: str = ""  # within the message, or the result
    params: Document = field(default_factory=dict)
    timeout: float | None = None
    truncated: bool = False  # its log is cut, with a mark

    @property
    def body(self) -> Document:
        limit = {} if self.timeout is None else {"timeout_seconds": self.timeout}
        return {"task": self.task, "params": self.params, "max_retries": 0, **limit}


def hostile_node(cluster: Cluster, roles: str = "api,planner,worker", *more: str, wait: bool = True) -> Server:
    """Start `horae serve` with the hostile tasks and the usual ones."""
    server = cluster.spawn(
        f"hostile-{roles.replace(',', '+')}",
        ["serve", "--roles", roles, "--app", APP, *more],
        roles=frozenset(roles.split(",")),
    )
    if wait:
        cluster.ready(server)
    return server


# --- handlers


def endure(cluster: Cluster, attacks: Sequence[Attack], *, latest: float) -> list[float]:
    """Run one attack after another beside a job that fires every second; return its lateness."""
    [node] = cluster.of_role("worker")
    with neighbour(cluster) as job:
        for attack in attacks:
            _suffer(cluster, attack)
            assert node.alive, f"{attack.task} ended the node:\n{node.tail()}"
    return judge_neighbour(cluster, job, latest=latest)


def _suffer(cluster: Cluster, attack: Attack) -> None:
    job = cluster.rest.post("/v1/jobs", attack.body, status=201)
    run = cluster.rest.wait(run_of(job["id"]), within=30)
    error = run["error"] or {}
    wanted = "succeeded" if attack.error is SUCCEEDED else "failed"
    assert (run["status"], error.get("type")) == (wanted, attack.error), f"{attack.task}: {run}"
    assert attack.says in (error["message"] if error else str(run["result"])), f"{attack.task}: {run}"
    if attack.truncated:
        eventually(
            lambda: "log truncated" in str(cluster.rest.get(f"/v1/runs/{run['id']}/logs")),
            f"the log of {attack.task} is cut",
            within=5,
        )


@contextlib.contextmanager
def neighbour(cluster: Cluster, **fields: Any) -> Iterator[str]:
    """Run a job of another owner every second around the body of the `with`."""
    job = cluster.rest.create("effects.work", {"label": "neighbour"}, schedule="* * * * * *", overlap="allow", **fields)
    eventually(lambda: cluster.effects.ends(job["id"]), "the neighbour's job runs", within=10)
    yield job["id"]
    now = time.time()
    eventually(
        lambda: any(end.due >= now for end in cluster.effects.ends(job["id"])), "the neighbour's job goes on", within=30
    )
    cluster.rest.delete(f"/v1/jobs/{job['id']}")


def judge_neighbour(cluster: Cluster, job: str, *, latest: float) -> list[float]:
    """Check that every second ran once and on time; return the lateness."""
    last = max(end.due for end in cluster.effects.ends(job)) - 1  # after that its job was cancelled
    starts = [start for start in cluster.effects.starts(job) if start.attempt == 1 and start.due <= last]
    dues = sorted({start.due for start in starts})
    assert dues == [dues[0] + second for second in range(len(dues))], f"a second is missing in {dues}"
    assert not cluster.effects.doubled(job), "a second ran twice"
    eventually(
        lambda: {slot["outcome"] for slot in cluster.rest.slots(job, end=timestamp(last))} == {"ran"},
        "each slot has run",
        within=5,
    )
    latenesses = [start.lateness for start in starts]
    assert min(latenesses) >= EARLIEST
    late = {timestamp(start.due): round(start.lateness, 3) for start in starts if start.lateness > latest}
    assert not late, f"later than {latest:g} s: {late}"
    return latenesses


def summary(latenesses: list[float]) -> str:
    p50, p99 = (percentile(latenesses, percent) * 1000 for percent in (50, 99))
    return f"{len(latenesses)} neighbours late by p50 {p50:.1f}, p99 {p99:.1f}, max {max(latenesses) * 1000:.1f} ms"


def memory_of(server: Server) -> float:
    """The memory of a process in megabytes."""
    return float(psutil.Process(server.pid).memory_info().rss) / 1e6


def descendants_gone(cluster: Cluster, job: str) -> bool:
    """Whether the processes that a handler recorded have ended."""
    pids = [int(pid) for start in cluster.effects.starts(job) for pid in start.label.split()]
    return bool(pids) and not any(psutil.pid_exists(pid) and _runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- clients


class Siege:
    """Clients that open connections and misuse them, until the end of the `with`."""

    def __init__(self, url: str, *, each: int) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        self._place = (place.hostname, place.port)
        self._each = each
        self._thread = threading.Thread(target=lambda: asyncio.run(self._besiege()), daemon=True)
        self._lifted = threading.Event()
        self.opened = 0
        self.dropped: list[bytes] = []  # what the server said to those that it dropped
        self.nonsense = 0  # requests that were refused

    def __enter__(self) -> "Siege":
        self._thread.start()
        eventually(lambda: self.opened >= 3 * self._each, "the siege is laid", within=20)
        return self

    def __exit__(self, *_: object) -> None:
        self._lifted.set()
        self._thread.join()

    async def _besiege(self) -> None:
        clients = [client() for _ in range(self._each) for client in (self._slow_head, self._slow_body, self._silent)]
        tasks = [asyncio.create_task(client) for client in (*clients, self._speak_nonsense())]
        while not self._lifted.is_set():  # noqa: ASYNC110 - lifted by another thread
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _slow_head(self) -> None:
        await self._drip(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n")

    async def _slow_body(self) -> None:
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        await self._drip(head + b'{"task":"', b"x")

    async def _silent(self) -> None:
        await self._drip(b"", b"")

    async def _drip(self, beginning: bytes, drop: bytes) -> None:
        """Send a few bytes now and then, until the server closes the connection."""
        reader, writer = await asyncio.open_connection(*self._place)
        self.opened += 1
        try:
            writer.write(beginning)
            while True:
                writer.write(drop)
                with contextlib.suppress(TimeoutError):
                    self.dropped.append(await asyncio.wait_for(reader.read(4096), 0.5))
                    return
        except ConnectionError:
            self.dropped.append(b"")
        finally:
            writer.close()

    async def _speak_nonsense(self) -> None:
        while True:
            reader, writer = await asyncio.open_connection(*self._place)
            with contextlib.suppress(ConnectionError):
                writer.write(b"\x16\x03\x01 nonsense \xff\r\n\r\n")
                self.nonsense += b" 400 " in await reader.readline()
            writer.close()
            await asyncio.sleep(0.01)


def good_requests(cluster: Cluster, *, seconds: float) -> list[float]:
    """Create and read jobs continuously; return the duration of each request."""
    took = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        job = cluster.rest.create("effects.work", {"label": "good"})
        took.append(time.monotonic() - began)
        began = time.monotonic()
        assert instant(cluster.rest.job(job["id"])["created_at"]) > 0
        took.append(time.monotonic() - began)
        time.sleep(0.02)
    return took
