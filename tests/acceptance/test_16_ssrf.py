"""The SSRF table, row by row, through the whole product: refused, and an internal listener is never reached."""

import time
from typing import Any

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.execution.ssrf import REDIRECTS, ROWS, listener
from tests.system.cluster import Cluster
from tests.system.fixtures import OpenCluster
from tests.system.rest import FINAL

pytestmark = pytest.mark.acceptance

ALLOW = "127.0.0.0/8,0.0.0.0/32,::1/128,::/128"
WITHIN = 60.0


def test_no_spelling_of_an_internal_address_gets_through(
    new_cluster: OpenCluster, kind: str, report_figure: ReportFigure
) -> None:
    with listener() as inside:
        cluster = new_cluster(kind)
        cluster.node()
        runs = _sent(cluster, [row.url(inside.port) for row in ROWS])
        reached = {row.name: run for row, run in zip(ROWS, runs, strict=True) if run["status"] != "failed"}
        assert reached == {}
        wrong = {row.name: run for row, run in zip(ROWS, runs, strict=True) if run["error"]["type"] not in row.errors}
        assert wrong == {}
        assert inside.heard == []
    report_figure(f"{len(ROWS)} spellings refused, the listener was reached {len(inside.heard)} times")


def test_no_redirect_leads_inside(new_cluster: OpenCluster, report_figure: ReportFigure) -> None:
    with listener() as inside:
        cluster = new_cluster("sqlite", HORAE_HTTP_ALLOW="localhost")
        cluster.node()
        for place in REDIRECTS:
            with listener(place.format(port=inside.port)) as outside:
                [run] = _sent(cluster, [f"http://localhost:{outside.port}/"])
                assert (run["status"], run["error"]["type"]) == ("failed", "BlockedAddress"), place
                assert (len(outside.heard), inside.heard) == (1, []), place
    report_figure(f"{len(REDIRECTS)} redirects not followed")


def test_where_it_is_allowed_the_same_requests_arrive(new_cluster: OpenCluster) -> None:
    local = [row for row in ROWS if row.local]
    with listener() as inside, listener(f"http://127.0.0.1:{inside.port}/") as outside:
        cluster = new_cluster("sqlite", HORAE_HTTP_ALLOW=f"{ALLOW},localhost")
        cluster.node()
        urls = [*(row.url(inside.port) for row in local), f"http://localhost:{outside.port}/"]
        runs = _sent(cluster, urls)
        assert [run["status"] for run in runs] == ["succeeded"] * len(urls), runs
        assert all(run["result"]["body"] == "inside" for run in runs)
        assert len(inside.heard) == len(urls)


def _sent(cluster: Cluster, urls: list[str]) -> list[Any]:
    """Request each address by a job; return the runs after they ended."""
    jobs = [{"task": "http.request", "params": {"url": url}, "max_retries": 0} for url in urls]
    items = cluster.rest.post("/v1/jobs/batch", {"jobs": jobs})["items"]
    ids = [item["id"].replace("job_", "run_") for item in items]
    deadline = time.monotonic() + WITHIN
    while True:
        runs = [cluster.rest.get(f"/v1/runs/{run_id}") for run_id in ids]
        if all(run["status"] in FINAL for run in runs):
            return runs
        assert time.monotonic() < deadline, runs
        time.sleep(0.1)
