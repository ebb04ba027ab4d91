"""A million one-shots and ten thousand recurring jobs: every page is quick, also one that finds nothing."""

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from horae.core.decisions.firing import Firing
from horae.core.ids import Ids
from horae.core.model import Job, JobId, Spec
from horae.core.schedule.types import Every
from horae.ports.store import Store
from tests import acts
from tests.acceptance.conftest import ReportFigure
from tests.api.tokens import SECRET, by_secret, claims
from tests.system import scale
from tests.system.cluster import Cluster
from tests.system.fixtures import STORES, scratch_store
from tests.system.on_time import percentile
from tests.system.waiting import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.asyncio(loop_scope="module")]

ONE_SHOTS, RECURRING = 1_000_000, 10_000
BATCH = 500
FAR = timedelta(days=300)
PAGE_SECONDS = 0.15
TRIES = 5
OWNER, QUIET = scale.OWNER, "quiet"
SEARCHERS = 8  # connections of the owner who searches
RUNS, STEP = 400, timedelta(seconds=0.05)  # of the other one
MORE_SECONDS = 0.010

LISTS: dict[str, list[dict[str, str]]] = {
    "/v1/jobs": [
        {},
        {"limit": "1000"},
        {"q": "nowhere"},
        {"q": "nöwhere"},
        {"name": "nowhere"},
        {"key": "nowhere"},
        {"label": "no:where"},
        {"task": "nowhere"},
        {"queue": "mail", "q": "nowhere"},
        {"status": "paused"},
        {"status": "cancelled", "q": "nowhere"},
        {"status": "finished", "q": "nowhere"},
        {"status": "scheduled", "name": "nowhere"},
        {"last_run_status": "running"},
        {"last_run_status": "failed", "q": "nowhere"},
        {"owner": "*"},
        {"owner": "*", "q": "nowhere"},
    ],
    "/v1/runs": [
        {},
        {"limit": "1000"},
        {"q": "nowhere"},
        {"label": "no:where"},
        {"trigger": "backfill"},
        {"worker_id": "0" * 12 + "7000" + "8" + "0" * 15},
        {"error_type": "Nowhere"},
        {"min_lateness_ms": "86400000"},
        {"task": "demo.echo", "q": "nowhere"},
        {"queue": "mail", "trigger": "manual"},
        *({"status": status, "q": "nowhere"} for status in ("scheduled", "queued", "succeeded", "failed", "cancelled")),
        *({"status": status} for status in ("running", "retrying", "cancelling", "skipped", "queued", "failed")),
        {"owner": "*"},
        {"owner": "*", "q": "nowhere"},
        {"start_time": "2020-01-01T00:00:00Z", "end_time": "2020-02-01T00:00:00Z"},
    ],
    "/v1/dead-letters": [{}, {"error": "Nowhere"}, {"task": "nowhere"}, {"group": "error"}, {"owner": "*"}],
    "/v1/queues": [{}, {"limit": "1"}],
    "/v1/tasks": [{}],
    "/v1/workers": [{}],
    "/metrics": [{}],
}


@dataclass(frozen=True, slots=True)
class Filled:
    """A node on a store with so many jobs."""

    url: str

    @contextmanager
    def client(self, owner: str, scope: str) -> Iterator[httpx2.Client]:
        headers = {"Authorization": f"Bearer {by_secret(claims(time.time(), sub=owner, aud=None, scope=scope))}"}
        with httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False) as client:
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=STORES)
async def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Filled]:
    kind, folder = str(request.param), tmp_path_factory.mktemp("million")
    async with scratch_store(kind, folder) as address:
        async with scale.sized(kind, address, ONE_SHOTS) as sized:
            await _add_recurring(sized.store)
        with Cluster(folder, address, HORAE_AUTH="jwt", HORAE_JWT_SECRET=SECRET) as cluster:
            url = cluster.node().url
            assert url is not None
            yield Filled(url)


async def _add_recurring(store: Store) -> None:
    new_id, now = Ids(), datetime.now(UTC)
    for start in range(0, RECURRING, BATCH):
        jobs = [
            Job(
                id=JobId(new_id()),
                owner=OWNER,
                created_by=OWNER,
                spec=Spec(task="demo.echo", name=f"report {number}"),
                schedule=Every(interval=FAR, anchor=now),
                next_fire_at=now + FAR,
                plan_at=now + FAR,
                created_at=now,
                updated_at=now,
            )
            for number in range(start, start + BATCH)
        ]
        firings = [
            Firing(job=job, runs=(), next_fire_at=job.next_fire_at, plan_at=job.plan_at, status=job.status)
            for job in jobs
        ]
        await acts.create(store, firings)


async def test_every_page_is_quick_also_one_that_finds_nothing(filled: Filled, report_figure: ReportFigure) -> None:
    taken: dict[str, float] = {}
    with filled.client(OWNER, "jobs:read admin") as client:
        for path, queries in LISTS.items():
            for query in queries:
                name = f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
                taken[name] = _best(client, path, query)
                taken[f"{name}, next page"] = _best(client, path, _next(client, path, query))
    slowest = sorted(taken, key=lambda name: taken[name], reverse=True)[:5]
    report_figure("; ".join(f"{name} {taken[name] * 1000:.0f} ms" for name in slowest))
    slow = {name: seconds for name, seconds in taken.items() if seconds > PAGE_SECONDS}
    assert not slow, slow


def _best(client: httpx2.Client, path: str, query: dict[str, str]) -> float:
    """The seconds of a request: the median of some, for the machine may do something else."""
    seconds = []
    for _ in range(TRIES):
        began = time.monotonic()
        answer = client.get(path, params=query)
        seconds.append(time.monotonic() - began)
        assert answer.status_code == 200, answer.text
    return sorted(seconds)[TRIES // 2]


def _next(client: httpx2.Client, path: str, query: dict[str, str]) -> dict[str, str]:
    """The query of the page after the first, which is the first one again if there is no other."""
    answer = client.get(path, params=query)
    cursor = answer.json().get("next_cursor") if path.startswith("/v1") else None
    return query if cursor is None else {**query, "cursor": cursor}


async def test_a_search_ends_and_finds_what_there_is(filled: Filled) -> None:
    with filled.client(OWNER, "jobs:read") as client:
        found, pages, cursor = [], 0, None
        while pages == 0 or cursor is not None:
            answer = client.get("/v1/jobs", params={"q": "report 4321", "limit": 100, **_cursor(cursor)}).json()
            found += [job["name"] for job in answer["items"]]
            assert answer["next_cursor"] is None or len(answer["items"]) == 100 or answer["searched_to"]
            cursor, pages = answer["next_cursor"], pages + 1
            if found:
                break
    assert found == ["report 4321"]


def _cursor(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"cursor": cursor}


async def test_one_who_searches_in_a_loop_delays_nobody(filled: Filled, report_figure: ReportFigure) -> None:
    with filled.client(QUIET, "jobs:read jobs:write") as quiet:
        alone = _latenesses(quiet)
        with _searching(filled) as answers:
            beside = _latenesses(quiet)
    assert answers.get(200, 0) > 20, answers
    assert set(answers) <= {200, 429}, answers
    report_figure(
        f"late p99 {percentile(alone, 99) * 1000:.1f} ms alone, {percentile(beside, 99) * 1000:.1f} ms beside"
        f" {answers} searches"
    )
    assert percentile(beside, 99) <= percentile(alone, 99) + MORE_SECONDS


def _latenesses(client: httpx2.Client) -> list[float]:
    """How late runs start that are due one after another, in seconds."""
    first = datetime.now(UTC) + timedelta(seconds=3)
    jobs = [
        {"task": "demo.echo", "queue": QUIET, "schedule": (first + place * STEP).isoformat()} for place in range(RUNS)
    ]
    answer = client.post("/v1/jobs/batch", json={"jobs": jobs})
    assert answer.json()["rejected"] == 0, answer.text
    query = {"queue": QUIET, "status": "succeeded", "start_time": first.isoformat(), "limit": "1000"}

    def ended() -> list[Any]:
        items: list[Any] = client.get("/v1/runs", params=query).json()["items"]
        return items if len(items) == RUNS else []

    time.sleep((RUNS * STEP).total_seconds() + 3)  # what is asked meanwhile would be measured, too
    eventually(ended, "all have ended", within=60)
    return [run["lateness_ms"] / 1000 for run in ended()]


@contextmanager
def _searching(filled: Filled) -> Iterator[dict[int, int]]:
    """One owner who searches for nothing as often as it can."""
    stopping, answers, lock = threading.Event(), dict[int, int](), threading.Lock()

    def search() -> None:
        with filled.client(OWNER, "jobs:read jobs:write") as client:
            while not stopping.is_set():
                status = client.get("/v1/jobs", params={"q": "nowhere"}).status_code
                with lock:
                    answers[status] = answers.get(status, 0) + 1

    threads = [threading.Thread(target=search, daemon=True) for _ in range(SEARCHERS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
