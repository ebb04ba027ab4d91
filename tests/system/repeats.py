"""Repeated and concurrent requests to real servers: each takes effect once, even if a server is killed."""

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.system.cluster import Cluster, Server
from tests.system.waiting import eventually

IN_TIME = 20.0

Answer = httpx2.Response


def check_storm(cluster: Cluster, *, requests: int) -> str:
    """Check that concurrent creates with one key make one job; answers are equal, or say that one is in flight."""
    body = {"task": "demo.echo", "params": {"message": "storm"}, "name": "storm"}
    answers = asyncio.run(_storm(_urls(cluster), "POST", "/v1/jobs", body, requests, {"Idempotency-Key": "storm"}))
    done = [answer for answer in answers if answer.status_code != 409]
    assert {answer.status_code for answer in done} == {201}, {answer.text for answer in answers}
    assert len({answer.content for answer in done}) == 1
    assert len(_named(cluster, "storm")) == 1
    return f"{requests} requests: {len(done)} × 201, {len(answers) - len(done)} × 409, one job"


def check_storm_with_a_kill(cluster: Cluster, *, requests: int) -> None:
    """The same while a server is killed: a client without an answer retries elsewhere and gets the same job."""
    body = {"task": "demo.echo", "name": "killed storm"}
    victim, *_ = cluster.of_role("api")

    async def storm() -> list[Answer]:
        asked = asyncio.create_task(
            _storm(_urls(cluster), "POST", "/v1/jobs", body, requests, {"Idempotency-Key": "killed storm"})
        )
        while not asked.done() and not await asyncio.to_thread(_named, cluster, "killed storm"):
            pass  # until the job shows
        victim.kill()
        return await asked

    answers = asyncio.run(storm())
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert len(_named(cluster, "killed storm")) == 1


def check_patches(cluster: Cluster, *, requests: int) -> str:
    """Check that of concurrent patches of one revision exactly one succeeds."""
    job = cluster.rest.create("demo.echo", schedule="every 1h")
    bodies = [{"priority": number + 1} for number in range(requests)]
    answers = asyncio.run(
        _storm(_urls(cluster), "PATCH", f"/v1/jobs/{job['id']}", bodies, requests, {"If-Match": '"1"'})
    )
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [200] + [412] * (requests - 1), statuses
    [won] = [answer for answer in answers if answer.status_code == 200]
    now = cluster.rest.job(job["id"])
    assert (now["revision"], now["priority"]) == (2, won.json()["priority"])
    return f"{requests} requests: one 200, {requests - 1} × 412"


# --- a server that dies between the commit and the answer


def check_lost_create(cluster: Cluster, name: str) -> None:
    """Kill the server as soon as a job is stored: repeated elsewhere, the job exists once."""
    _check_lost(
        cluster,
        "/v1/jobs",
        {"task": "demo.echo", "name": name},
        shows=lambda: bool(_named(cluster, name)),
        answered=lambda answer: [answer["id"]] == [job["id"] for job in _named(cluster, name)],
        key=name,
    )


def check_lost_run(cluster: Cluster) -> None:
    """The same for a manual run."""
    job = cluster.rest.create("demo.echo", schedule="every 1h")
    _check_lost(
        cluster,
        f"/v1/jobs/{job['id']}/run",
        {"params": {"message": "lost run"}},
        shows=lambda: bool(cluster.rest.runs_of(job["id"], status="queued") or _ended(cluster, job["id"])),
        answered=lambda answer: [answer["id"]] == [run["id"] for run in _ended(cluster, job["id"])],
        key=job["id"],
    )


def check_half_a_batch(cluster: Cluster, *, jobs: int) -> str:
    """Kill the server while it writes a batch: repeated elsewhere it is completed without duplicates."""
    body = {"jobs": [{"task": "demo.echo", "name": "half", "schedule": "2099-01-01T00:00:00Z"} for _ in range(jobs)]}
    there = 0

    def shows() -> bool:
        nonlocal there
        there = len(_named(cluster, "half"))
        return there > 0

    def complete(answer: Any) -> bool:
        ids = {item["id"] for item in answer["items"]}
        return len(ids) == jobs and ids == {job["id"] for job in cluster.rest.pages("/v1/jobs", {"name": "half"})}

    _check_lost(cluster, "/v1/jobs/batch", body, shows=shows, answered=complete, key="half")
    return f"killed when {there} of {jobs} jobs showed on the first page"


def _check_lost(
    cluster: Cluster, path: str, body: Any, *, shows: Callable[[], bool], answered: Callable[[Any], bool], key: str
) -> None:
    """Send a request without reading the answer, kill the server once the effect is stored, and repeat elsewhere."""
    victim, *others = cluster.of_role("api")
    assert others, "somebody must be left to ask"
    data = json.dumps(body).encode()
    with _unheard(victim, path, data, key=key):
        eventually(_elsewhere(cluster, victim, shows), f"{path} shows in the store", within=IN_TIME)
        victim.kill()
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    first, again = [
        httpx2.post(f"{others[0].url}{path}", content=data, headers=headers, timeout=IN_TIME, trust_env=False)
        for _ in range(2)
    ]
    assert first.is_success, first.text
    eventually(lambda: answered(first.json()), f"{path} was done once: {first.text[:500]}", within=IN_TIME)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    cluster.node(",".join(sorted(victim.roles)))


def _elsewhere(cluster: Cluster, victim: Server, shows: Callable[[], bool]) -> Callable[[], bool]:
    """Read through other servers, because the first is busy."""

    def look() -> bool:
        cluster.servers.sort(key=lambda server: server is victim)
        return shows()

    return look


def _unheard(server: Server, path: str, data: bytes, *, key: str) -> socket.socket:
    """A connection with a sent request and an unread answer."""
    address = urlsplit(server.url or "")
    connection = socket.create_connection((address.hostname or "", address.port or 0))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


# --- helpers


def _urls(cluster: Cluster) -> list[str]:
    return [server.url for server in cluster.of_role("api") if server.url is not None]


def _named(cluster: Cluster, name: str) -> list[Any]:
    found: list[Any] = cluster.rest.get("/v1/jobs", name=name, limit=1000)["items"]
    return found


def _ended(cluster: Cluster, job_id: str) -> list[Any]:
    return cluster.rest.runs_of(job_id, status="succeeded")


async def _storm(
    urls: Sequence[str], method: str, path: str, body: Any, requests: int, headers: dict[str, str]
) -> list[Answer]:
    """Send concurrent requests to the servers in turn; `body` may be a list with one body per request."""
    limits = httpx2.Limits(max_connections=requests)
    async with httpx2.AsyncClient(timeout=IN_TIME, trust_env=False, limits=limits) as client:

        async def ask(place: int) -> Answer:
            sent = body[place] if isinstance(body, list) else body
            for turn in range(len(urls) + 1):
                url = urls[(place + turn) % len(urls)]
                try:
                    return await client.request(method, f"{url}{path}", json=sent, headers=headers)
                except httpx2.TransportError:
                    continue  # killed; another one will know
            raise AssertionError("no server answers")

        return await asyncio.gather(*(ask(place) for place in range(requests)))
