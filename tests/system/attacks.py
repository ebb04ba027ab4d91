"""Attacks on processes, connections and time: kills in a batch and in retention, a pooler, a clock that steps."""

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import httpx2

from horae.adapters import make_store
from horae.core.decisions.results import Failure, fail, start, succeed
from horae.core.ids import Ids
from horae.core.model import JobError, JobId, Node, NodeId, Run, RunId, Spec
from horae.core.schedule.types import At
from horae.ports.reader import RunFilter
from horae.ports.store import ClaimRequest, Store
from tests import acts
from tests.system.chaos import Figures, Load, create_every_second, judge
from tests.system.cluster import Cluster
from tests.system.pooler import Pooler
from tests.system.rest import Document, instant, run_of
from tests.system.skew import WallClock
from tests.system.waiting import eventually, let_pass

FAR = "2099-01-01T00:00:00Z"
TASK = "demo.echo"
BATCH = 1000

new_id = Ids()


# --- kill -9 in the middle of a batch


@dataclass
class BatchFigures:
    """What became of batches whose server was killed."""

    kills: int = 0
    answered: int = 0  # before the kill came
    partial: int = 0  # batches of which a part was there after the kill

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.answered} came after the answer, {self.partial} left a part of a batch"


def check_kills_in_batches(cluster: Cluster, *, jobs: int, kills: int, seed: int) -> BatchFigures:
    """Kill the server at any moment of a batch: sent again, each job of it exists once."""
    rng, figures = random.Random(seed), BatchFigures()
    cluster.node()
    took = _seconds_of(lambda: _send(cluster, _batch("warm up", jobs)))
    for number in range(kills):
        name = f"batch {number}"
        batch = _batch(name, jobs)
        figures.kills += 1
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(_send, cluster, batch)
            time.sleep(rng.uniform(0.1, 1.0) * took)
            [server] = cluster.of_role("api")
            server.kill()
            figures.answered += sent.result() is not None
        cluster.node()
        before = _named(cluster, name)
        figures.partial += 0 < before < jobs
        answer = _send(cluster, batch)
        assert answer is not None
        assert answer["rejected"] == 0, [item for item in answer["items"] if "error" in item][:3]
        assert len({item["id"] for item in answer["items"]}) == jobs
        assert _named(cluster, name) == jobs, "each job of the batch exists once"
    return figures


def _batch(name: str, jobs: int) -> Document:
    common = {"task": TASK, "schedule": FAR, "name": name}
    return {"jobs": [{**common, "idempotency_key": f"{name} {number}"} for number in range(jobs)]}


def _send(cluster: Cluster, body: Document) -> Document | None:
    """The answer to a batch; None if its server died before."""
    try:
        response = httpx2.post(f"{cluster.of_role('api')[0].url}/v1/jobs/batch", json=body, timeout=60, trust_env=False)
    except httpx2.TransportError:
        return None
    assert response.status_code == 200, response.text[:500]
    answer: Document = response.json()
    return answer


def _named(cluster: Cluster, name: str) -> int:
    return len({job["id"] for job in cluster.rest.pages("/v1/jobs", {"name": name})})


def _seconds_of(act: object) -> float:
    assert callable(act)
    began = time.monotonic()
    act()
    return time.monotonic() - began


# --- kill -9 during retention


def check_kills_in_retention(cluster: Cluster, *, runs: int, days: int, kills: int, seed: int) -> str:
    """Kill nodes while they delete old history: what is young stays, what is old goes, and the store is sound."""
    rng = random.Random(seed)
    asyncio.run(_write_history(cluster.store, runs=runs, days=days))
    old, young = asyncio.run(_counted(cluster.store))
    assert old >= runs // 2
    seen = []
    for _ in range(kills):
        server = cluster.node("planner", wait=False)
        eventually(lambda: "ready" in server.output() or not server.alive, "the node starts", within=30)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.4))
        server.kill()
        left, kept = asyncio.run(_counted(cluster.store))
        assert kept == young, "nothing young was deleted"
        seen.append(left)
        cluster.check()
    cluster.node()
    counted = partial(_counted, cluster.store)  # reads the whole history
    eventually(lambda: asyncio.run(counted()) == (0, young), "all that is old is deleted", within=60, every=0.5)
    job = cluster.rest.create(TASK)
    assert cluster.rest.wait(run_of(job["id"]), within=30)["status"] == "succeeded"
    return f"of {old} old runs {seen} were left after each kill, and none in the end; {young} young ones stayed"


async def _write_history(address: str, *, runs: int, days: int) -> None:
    """Write ended runs of some days around the retention of 30 days, a part of them failed with attempts."""
    store = make_store(address)
    await store.open()
    try:
        now = await store.time()
        node = _node(now)
        await acts.register(store, node)
        for day in range(days):
            ended_at = now - timedelta(days=30 + days // 2 - day)
            for first in range(0, runs // days, BATCH):
                await _end_runs(store, node.id, [_run(ended_at) for _ in range(min(BATCH, runs // days - first))])
        await acts.unregister(store, node.id)
    finally:
        await store.close()


async def _end_runs(store: Store, node: NodeId, runs: Sequence[Run]) -> None:
    at = runs[0].due_at
    await acts.create(store, runs)
    claims = await store.claim(ClaimRequest(node=node, queues=(), tasks=(TASK,), now=at, until=at, limit=len(runs)))
    assert len(claims.runs) == len(runs)
    started = [start(run, at) for run in claims.runs]
    error = Failure(error=JobError(type="Boom", message="boom"), fatal=True)
    ended = [
        fail(run, error, at, 0.0) if number % 5 == 0 else succeed(run, '"done"', at)
        for number, run in enumerate(started)
    ]
    assert all(await store.settle(ended))


async def _counted(address: str) -> tuple[int, int]:
    """How many ended runs are older than the retention, and how many are younger."""
    store = make_store(address)
    await store.open()
    try:
        midnight = (await store.time() - timedelta(days=30)).replace(hour=0, minute=0, second=0, microsecond=0)
        counts = {True: 0, False: 0}
        cursor: str | None = None
        while True:
            page = await store.list_runs(RunFilter(owner="local"), cursor=cursor, limit=BATCH)
            for run in page.items:
                counts[run.due_at < midnight] += 1
            cursor = page.cursor
            if cursor is None:
                return counts[True], counts[False]
    finally:
        await store.close()


def _node(now: datetime) -> Node:
    return Node(
        id=NodeId(new_id()),
        name="past",
        roles=("worker",),
        version="test",
        concurrency=1,
        started_at=now,
        beat_at=now,
        tasks={TASK: "{}"},
    )


def _run(at: datetime) -> Run:
    job_id = JobId(new_id())
    return Run(
        id=RunId(job_id),
        job_id=job_id,
        owner="local",
        created_by="local",
        spec=Spec(task=TASK, params="{}"),
        schedule=At(time=at),
        due_at=at,
        wake_at=at,
        created_at=at,
    )


# --- a pooler that changes connections between transactions


def check_pooler(cluster: Cluster, pooler: Pooler, *, seconds: float, per_second: float, kill: bool) -> str:
    """Work through a pooler with fewer connections than clients, and perhaps lose a node meanwhile."""
    cluster.ready(*[cluster.node(wait=False) for _ in range(2)])
    figures = Figures()
    slots = create_every_second(cluster, 2, overlap="allow")
    keyed = [{"task": "effects.work", "ordering_key": f"key {number % 5}"} for number in range(100)]
    ordered = cluster.rest.create_many(keyed)
    with Load(cluster, per_second=per_second) as load:
        let_pass(seconds / 2)
        if kill:
            cluster.of_role("worker")[0].kill()
            cluster.node()
        let_pass(seconds / 2)
    figures.refused = load.refused
    judge(cluster, ordered + load.accepted, slots, figures, within=60)
    assert kill or load.refused == 0, f"{load.refused} requests were refused"
    output = "".join(server.output() for server in cluster.servers)
    assert "Traceback" not in output, cluster.story()
    shared = len(pooler.turns)
    assert shared > pooler.size, "there were no more clients than connections"
    return f"{figures}; {shared} clients shared {pooler.size} connections in {pooler.turns.total()} transactions"


# --- a clock of the store that steps


def check_clock_steps(cluster: Cluster, clock: WallClock, steps: Sequence[int]) -> str:
    """Let the clock of the store step while nodes work: each slot is made once, and jobs for now start at once."""
    cluster.ready(*[cluster.node(wait=False) for _ in range(2)])
    slots = create_every_second(cluster, 2, overlap="allow")
    accepted: list[str] = []
    waited = []
    let_pass(3)
    for step in steps:
        clock.jump(step)
        let_pass(2)  # the library looks for its error once a second
        began = time.monotonic()
        jobs = cluster.rest.create_many([{"task": "effects.work"}] * 20)
        cluster.rest.wait_all([run_of(job) for job in jobs], within=30)
        waited.append(time.monotonic() - began)
        accepted += jobs
        let_pass(4)
    latest = max(instant(run["due_at"]) for job in slots for run in cluster.rest.runs_of(job, status="succeeded"))
    eventually(
        lambda: all(_has_run_since(cluster, job, latest) for job in slots),
        "the slots go on where they were",
        within=max(steps) - min(steps) + 30,
    )
    for job in accepted:
        run = cluster.rest.run_of(job)
        assert (run["status"], run["attempt"]) == ("succeeded", 1), run
    for job in slots:
        doubled = cluster.effects.doubled(job)
        assert not doubled, f"slots that ran twice: {doubled}"
    return f"steps of {list(steps)} s: jobs for now ended within {max(waited):.1f} s"


def _has_run_since(cluster: Cluster, job: str, since: float) -> bool:
    return any(instant(run["due_at"]) > since for run in cluster.rest.runs_of(job, status="succeeded")[:5])
