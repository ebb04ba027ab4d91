"""One owner fills whatever it can make grow, and another owner's jobs stay on time.

The attacker has a plain token and uses REST only. What one owner may have is limited, so each attack ends at its size
or where it is refused. The lateness of the other owner's runs is taken from the records of these runs.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.api.tokens import SECRET, by_secret, claims
from tests.system.cluster import Cluster, Server
from tests.system.fixtures import scratch_store, without_loop
from tests.system.on_time import percentile
from tests.system.rest import Document, run_of, timestamp
from tests.system.waiting import eventually

AUTH = {"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": SECRET}
LIMITS = {"HORAE_MAX_QUEUES": "20000"}  # an administrator may allow more than there are by default
BATCH = 5_000  # jobs in one request
FAR = "2099-01-01T00:00:00Z"
UNKNOWN: Document = {"task": "nobody.knows", "allow_unknown_task": True}
WAITING: Document = {"task": "demo.echo", "schedule": FAR}
NARROW = "narrow"  # a queue with a limit
INTERVAL = 0.1  # seconds between two runs of the other owner
LEAD_SECONDS = 3.0  # from its requests to its first run
TOKEN_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A node with every role, and clients of several owners."""

    cluster: Cluster
    node: Server
    attacker: httpx2.Client
    other: httpx2.Client
    admin: httpx2.Client


@contextmanager
def open_site(kind: str, folder: Path, **settings: str) -> Iterator[Site]:
    """Open a node on an empty store."""
    with without_loop(scratch_store(kind, folder)) as store, Cluster(folder, store, **AUTH, **settings) as cluster:
        cluster.migrate()
        node = cluster.node()
        with (
            client(node, "attacker") as attacker,
            client(node, "other") as other,
            client(node, "root", "admin") as root,
        ):
            yield Site(cluster=cluster, node=node, attacker=attacker, other=other, admin=root)


def client(node: Server, owner: str, scope: str = "jobs:read jobs:write") -> httpx2.Client:
    """A client of one owner."""
    token = by_secret(claims(time.time(), sub=owner, scope=scope, exp=int(time.time()) + TOKEN_SECONDS))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.Client(base_url=str(node.url), headers=headers, timeout=120, trust_env=False)


# --- what one owner can make grow


Attack = Callable[[Site, int], AbstractContextManager[int]]  # yields how much of the size it got


def fill(site: Site, size: int, job: Callable[[int], Document]) -> int:
    """Create jobs of the attacker until there are so many, or it is refused; return how many were accepted."""
    accepted = 0
    for first in range(0, size, BATCH):
        jobs = [job(number) for number in range(first, min(first + BATCH, size))]
        response = site.attacker.post("/v1/jobs/batch", json={"jobs": jobs})
        if response.status_code == 429:
            break
        assert response.status_code == 200, response.text[:500]
        answer = response.json()
        refused = {item["error"]["status"] for item in answer["items"] if "error" in item}
        assert refused <= {429}, [item for item in answer["items"] if "error" in item][:3]
        accepted += answer["accepted"]
        if refused:
            break
    assert accepted > 0, "nothing was accepted"
    return accepted


def _jobs(job: Callable[[int], Document]) -> Attack:
    @contextmanager
    def attack(site: Site, size: int) -> Iterator[int]:
        yield fill(site, size, job)

    return attack


@contextmanager
def unknown_tasks(site: Site, size: int) -> Iterator[int]:
    """Due runs of a task that nobody knows, a half of them in a queue with a limit, where one that is known waits."""
    site.admin.patch(f"/v1/queues/{NARROW}", json={"concurrency": 1}).raise_for_status()
    long = {"task": "demo.sleep", "params": {"seconds": 600}, "queue": NARROW}
    for _ in range(2):
        site.attacker.post("/v1/jobs", json=long).raise_for_status()
    yield fill(site, size, lambda number: {**UNKNOWN, **({"queue": NARROW} if number % 2 else {})})


@contextmanager
def blocked_gates(site: Site, size: int) -> Iterator[int]:
    """Ordering keys of which each has a failed run, which blocks it, and one behind it."""
    fails: Document = {"task": "demo.fail", "max_retries": 0, "on_failure": "block"}
    accepted = fill(site, size, lambda number: {**fails, "ordering_key": f"key {number}"})
    behind: Document = {"task": "demo.echo", "on_failure": "block"}
    accepted += fill(site, accepted, lambda number: {**behind, "ordering_key": f"key {number}"})
    last = site.attacker.post("/v1/jobs", json={**fails, "ordering_key": "the last"}).raise_for_status().json()["id"]
    eventually(
        lambda: site.attacker.get(f"/v1/runs/{run_of(last)}").json()["status"] == "failed",
        "all of them have failed",
        within=300,
    )
    yield accepted


@contextmanager
def streams(site: Site, size: int) -> Iterator[int]:
    """Event streams and followed logs until they are refused, beside many events."""
    waiting = site.attacker.post("/v1/jobs", json=WAITING).raise_for_status().json()["id"]
    token = site.attacker.headers["Authorization"]
    paths = itertools.cycle(("/v1/events", f"/v1/runs/{run_of(waiting)}/logs?follow=1"))
    requests = [
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n".encode()
        for path in itertools.islice(paths, size)
    ]
    with Sockets(str(site.node.url), requests, keep=b" 200 ") as opened, _acting(site):
        yield opened.kept


@contextmanager
def connections(site: Site, size: int) -> Iterator[int]:
    """Connections without a token that ask for pages and never read them."""
    request = b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 16
    with Sockets(str(site.node.url), [request] * size, keep=b"") as opened:
        yield opened.kept


@contextmanager
def _acting(site: Site) -> Iterator[None]:
    """Create jobs of the attacker all the while."""
    over = threading.Event()

    def act() -> None:
        with client(site.node, "attacker") as attacker:
            while not over.wait(0.05):
                attacker.post("/v1/jobs", json=WAITING).raise_for_status()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Sockets:
    """Connections that each send a request and stay open, in a thread of their own."""

    def __init__(self, url: str, requests: list[bytes], *, keep: bytes) -> None:
        self._place = urlsplit(url)
        self._requests = requests
        self._keep = keep  # what the first line of an answer contains if the connection counts; empty: it is not read
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: list[asyncio.StreamWriter] = []
        self.kept = 0

    def __enter__(self) -> "Sockets":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(120)
        assert self.kept > 0, "no connection was accepted"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        for request in self._requests:
            try:
                reader, writer = await asyncio.open_connection(self._place.hostname, self._place.port, limit=2**16)
                writer.write(request)
                if self._keep and self._keep not in await asyncio.wait_for(reader.readline(), 30):
                    writer.close()
                    return  # that is the limit
            except OSError:
                return
            self._writers.append(writer)
            self.kept += 1

    async def _close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)


ATTACKS: dict[str, tuple[Attack, int]] = {  # with their full sizes
    "queues": (_jobs(lambda number: {**WAITING, "queue": f"queue-{number}"}), 20_000),
    "due-queues": (_jobs(lambda number: {**UNKNOWN, "queue": f"queue-{number}"}), 20_000),
    "keys": (_jobs(lambda number: {**UNKNOWN, "ordering_key": f"key {number}"}), 50_000),
    "labels": (_jobs(lambda number: {**WAITING, "labels": {f"label-{number}-{n}": "x" for n in range(10)}}), 50_000),
    "waiting": (_jobs(lambda _: WAITING), 300_000),
    "unknown": (unknown_tasks, 100_000),
    "blocked": (blocked_gates, 50_000),
    "streams": (streams, 5_000),
    "connections": (connections, 5_000),
}


# --- the other owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """How late the runs of the other owner were, and how long its requests took, in seconds."""

    lateness: list[float]
    requests: list[float]

    @property
    def p99(self) -> float:
        return percentile(self.lateness, 99)

    def __str__(self) -> str:
        p50, p99, latest = (1000 * value for value in (percentile(self.lateness, 50), self.p99, max(self.lateness)))
        late = f"{len(self.lateness)} runs late by p50 {p50:.1f}, p99 {p99:.1f}, max {latest:.1f} ms"
        return f"{late}; its requests p99 {percentile(self.requests, 99) * 1000:.0f} ms"


def measure(site: Site, *, seconds: float) -> Neighbour:
    """Run jobs of the other owner, every second and every 100 ms; all run, each in its own time."""
    recurring = site.other.post("/v1/jobs", json={"task": "demo.echo", "schedule": "* * * * * *", "overlap": "allow"})
    recurring.raise_for_status()
    first = time.time() + LEAD_SECONDS
    times = [first + INTERVAL * place for place in range(int(seconds / INTERVAL))]
    jobs = [{"task": "demo.echo", "schedule": timestamp(due)} for due in times]
    created = site.other.post("/v1/jobs/batch", json={"jobs": jobs}).raise_for_status().json()
    assert created["accepted"] == len(jobs), created["items"][0]
    took = list(_asked(site, recurring.json()["id"], until=times[-1]))
    job_id = recurring.json()["id"]
    eventually(lambda: site.other.delete(f"/v1/jobs/{job_id}").is_success, "the job is cancelled", within=30)
    runs = [_ended(site, run_of(item["id"])) for item in created["items"]]
    slots = [run for run in _pages(site.other, f"/v1/jobs/{job_id}/runs") if run["status"] != "cancelled"]
    assert {run["status"] for run in (*runs, *slots)} == {"succeeded"}, "a run of the other owner was not made"
    assert len(slots) >= seconds, "a slot of the other owner is missing"
    return Neighbour(lateness=[run["lateness_ms"] / 1000 for run in (*runs, *slots)], requests=took)


def _asked(site: Site, job_id: str, *, until: float) -> Iterator[float]:
    """Read a job all the while; yield how long each request took."""
    while time.time() < until:
        began = time.monotonic()
        response = site.other.get(f"/v1/jobs/{job_id}")
        assert response.status_code == 200, f"the other owner is refused: {response.status_code} {response.text}"
        yield time.monotonic() - began
        time.sleep(0.1)


def _ended(site: Site, run_id: str) -> Document:
    def look() -> Document | None:
        run: Document = site.other.get(f"/v1/runs/{run_id}").raise_for_status().json()
        return run if run["finished_at"] else None

    found = eventually(look, f"{run_id} has ended", within=60)
    assert found is not None
    return found


def _pages(owner: httpx2.Client, path: str) -> Iterator[Document]:
    cursor: dict[str, str] = {}
    while True:
        page = owner.get(path, params={"limit": "1000", **cursor}).raise_for_status().json()
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


def check_attacks(kind: str, folder: Path, *names: str, part: int, seconds: float) -> tuple[dict[str, int], Neighbour]:
    """Fill resources to a part of their full sizes; return how far that went, and what it was to the other owner."""
    got: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(open_site(kind, folder, **LIMITS))
        measure(site, seconds=1)  # the first runs of a node take longer
        for name in names:
            attack, size = ATTACKS[name]
            got[name] = stack.enter_context(attack(site, max(size // part, 20)))
        return got, measure(site, seconds=seconds)
