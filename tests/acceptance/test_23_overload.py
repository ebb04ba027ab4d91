"""Issue 5, part 5: more runs than there are slots, and more requests than can be answered."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.conftest import ReportFigure
from tests.api.tokens import SECRET, by_secret, claims
from tests.system import overload
from tests.system.cluster import Cluster, Server
from tests.system.fixtures import OpenCluster, scratch_store, without_loop
from tests.system.flood import Answers, flooding
from tests.system.on_time import percentile
from tests.system.postgres import OwnPostgres
from tests.system.rest import run_of
from tests.system.waiting import eventually

pytestmark = pytest.mark.acceptance

HERD = 100_000
BACKLOG = 1_000_000
FLOOD_SECONDS = 12.0
ANSWER_SECONDS = 1.0  # within which 99 in 100 requests of somebody else are answered during a flood
API_MEMORY = 1e9  # bytes
RATE_LIMIT = 100
TOLD_SECONDS = 5.0  # until /readyz tells that the store is away


def test_a_herd_of_100_000_starts_in_order_and_holds_up_nobody(
    new_cluster: OpenCluster, tmp_path: Path, report_figure: ReportFigure
) -> None:
    cluster, records = new_cluster("postgres"), tmp_path / "records"
    servers = overload.start_workers(cluster, records, workers=2)
    report_figure(overload.check_herd(cluster, records, servers, jobs=HERD, seconds=15, within=180))


def test_a_million_jobs_of_six_hours_are_worked_off_oldest_first_while_new_ones_are_on_time(
    tmp_path: Path, report_figure: ReportFigure
) -> None:
    with without_loop(scratch_store("postgres", tmp_path)) as store, Cluster(tmp_path, store) as cluster:
        cluster.migrate()
        seen, _ = overload.check_backlog(cluster, tmp_path / "records", jobs=BACKLOG, workers=2, within=900)
    report_figure(seen)


# --- one who sends as much as it can


@pytest.mark.parametrize(
    ("limit", "connections", "size"),
    [
        pytest.param(RATE_LIMIT, 300, 0, id="more-often-than-it-may"),
        pytest.param(0, 700, 0, id="more-at-once-than-it-may"),
        pytest.param(0, 5, 40_000_000, id="larger-than-it-may"),
    ],
)
def test_a_flood_of_requests_is_refused_and_others_are_served(
    new_cluster: OpenCluster, report_figure: ReportFigure, limit: int, connections: int, size: int
) -> None:
    settings = {"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": SECRET, "HORAE_RATE_LIMIT": str(limit)}
    cluster = new_cluster("postgres", **settings)
    api = cluster.node("api,planner")
    cluster.node("worker")
    assert api.url is not None
    with (
        _client(api, "quiet") as quiet,
        flooding(api.url, _token("flood"), connections=connections, seconds=FLOOD_SECONDS, size=size) as collected,
    ):
        waited = _ask_beside_it(quiet)
    [answers] = collected
    memory = overload.peak_memory(api)
    report_figure(
        f"the flood: {dict(answers.statuses)}; another owner: {len(waited)} jobs accepted,"
        f" p50 {percentile(waited, 50) * 1000:.0f} ms, p99 {percentile(waited, 99) * 1000:.0f} ms;"
        f" memory {memory / 1e6:.0f} MB"
    )
    _check_refusals(answers, limit)
    assert percentile(waited, 99) < ANSWER_SECONDS
    assert memory < API_MEMORY
    with _client(api, "flood") as flood:  # nothing is held against it afterwards
        eventually(lambda: _create(flood).status_code == 201, "the one who flooded is served again", within=5)


def _ask_beside_it(quiet: httpx2.Client) -> list[float]:
    """Create jobs during the flood, none of which is refused; return the duration of each request."""
    waited = []
    until = time.monotonic() + FLOOD_SECONDS - 2
    while time.monotonic() < until:
        began = time.monotonic()
        answer = _create(quiet)
        waited.append(time.monotonic() - began)
        assert answer.status_code == 201, f"{answer.status_code}: {answer.text}"
        ready = quiet.get("/readyz")
        assert ready.status_code == 200, "it serves, and says that it does not"
        time.sleep(0.05)
    return waited


def _check_refusals(answers: Answers, limit: int) -> None:
    assert answers.refused > 0, "it was no flood"
    assert answers.unhelpful == 0, "a refusal says when to come again"
    accepted = answers.statuses["201"] + answers.statuses["200"]
    assert accepted > 0, "what is within the limits is accepted"
    assert answers.statuses["lost"] == 0
    assert set(answers.statuses) <= {"200", "201", "429", "503"}, answers
    if limit:
        assert accepted <= limit * (FLOOD_SECONDS + 2) * 1.1


@contextmanager
def _client(api: Server, owner: str) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {_token(owner)}"}
    with httpx2.Client(base_url=str(api.url), headers=headers, timeout=30, trust_env=False) as client:
        yield client


def _token(owner: str) -> str:
    return by_secret(claims(time.time(), sub=owner, aud=None))


def _create(client: httpx2.Client) -> httpx2.Response:
    return client.post("/v1/jobs", json={"task": "demo.echo", "schedule": "2099-01-01T00:00:00Z"})


# --- /readyz


def test_readiness_is_true_when_the_store_is_away(tmp_path: Path, report_figure: ReportFigure) -> None:
    with OwnPostgres() as postgres, Cluster(tmp_path, postgres.url) as cluster:
        cluster.migrate()
        url = cluster.node().url
        assert _status(f"{url}/readyz") == 200
        postgres.stop_at_once()
        gone_at = time.monotonic()
        eventually(lambda: _status(f"{url}/readyz") == 503, "it tells that it is not ready", within=TOLD_SECONDS)
        noticed = time.monotonic() - gone_at
        assert _status(f"{url}/healthz") == 200, "there is no reason to restart it"
        refused = httpx2.post(f"{url}/v1/jobs", json={"task": "demo.echo"}, timeout=30, trust_env=False)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        postgres.start()
        back_at = time.monotonic()
        eventually(lambda: _status(f"{url}/readyz") == 200, "it is ready again", within=10)
        again = time.monotonic() - back_at
        report_figure(f"not ready {noticed:.1f} s after the store was gone, ready {again:.1f} s after it was back")
        job = cluster.rest.create("effects.work")
        cluster.rest.wait(run_of(job["id"]), "succeeded", within=20)
        cluster.check()


def test_a_node_that_drains_is_not_ready(new_cluster: OpenCluster, report_figure: ReportFigure) -> None:
    cluster = new_cluster("postgres")
    leaving, staying = cluster.node("api,worker"), cluster.node("api,planner")
    job = cluster.rest.create("effects.work", {"seconds": 4})
    cluster.rest.wait(run_of(job["id"]), "running", within=5)
    leaving.terminate()
    began = time.monotonic()
    eventually(lambda: _status(f"{leaving.url}/readyz") != 200, "it is not ready while it drains", within=1)
    noticed = time.monotonic() - began
    assert leaving.alive, "it lets go of nothing that runs"
    assert _status(f"{staying.url}/readyz") == 200
    assert leaving.wait(within=20) == 0
    run = cluster.rest.wait(run_of(job["id"]), within=5)
    assert (run["status"], run["attempt"]) == ("succeeded", 1), run
    report_figure(f"not ready {noticed * 1000:.0f} ms after SIGTERM")


def _status(url: str) -> int:
    """The status of the answer; 0 if the connection is refused."""
    try:
        return httpx2.get(url, timeout=30, trust_env=False).status_code
    except httpx2.TransportError:
        return 0
