"""One request with many jobs, some of them invalid."""

import json
import time
from typing import Any

import httpx2

from tests.system.cluster import Cluster

WRONG: tuple[tuple[dict[str, Any], str], ...] = (  # a job, and where it is wrong
    ({"task": "nobody.knows"}, "/task"),
    ({"tusk": "demo.echo"}, "/tusk"),
    ({"task": "demo.echo", "params": {"message": 7}}, "/params/message"),
    ({"task": "demo.echo", "schedule": "0 0 30 2 *"}, "/schedule"),
    ({"task": "demo.echo", "priority": 101}, "/priority"),
)


def check_batch(cluster: Cluster, *, jobs: int, wrong: int, lines: bool = False) -> float:
    """Check that valid jobs are accepted and each invalid one has a problem that points at it; return the seconds."""
    every = jobs // wrong
    bad = {place: WRONG[place // every % len(WRONG)] for place in range(every // 2, jobs, every)}
    sent = [bad[place][0] if place in bad else _good(place) for place in range(jobs)]
    data = "\n".join(map(json.dumps, sent)) if lines else json.dumps({"jobs": sent})
    url = cluster.of_role("api")[0].url
    headers = {"Content-Type": "application/x-ndjson" if lines else "application/json"}
    began = time.perf_counter()
    response = httpx2.post(f"{url}/v1/jobs/batch", content=data, headers=headers, timeout=60, trust_env=False)
    seconds = time.perf_counter() - began
    assert response.status_code == 200, response.text[:500]
    answer = response.json()
    assert (answer["accepted"], answer["rejected"]) == (jobs - wrong, wrong)
    problems = {place: item["error"] for place, item in enumerate(answer["items"]) if "error" in item}
    assert {place: problem["errors"][0]["pointer"] for place, problem in problems.items()} == {
        place: pointer for place, (_, pointer) in bad.items()
    }
    assert {problem["status"] for problem in problems.values()} == {422}
    ids = [item["id"] for item in answer["items"] if "id" in item]
    listed = {job["id"] for job in cluster.rest.pages("/v1/jobs", {"label": "batch:yes"})}
    assert len(ids) == jobs - wrong
    assert set(ids) <= listed
    return seconds


def _good(place: int) -> dict[str, Any]:
    """Jobs of several kinds, due so late that none runs meanwhile."""
    job: dict[str, Any] = {"task": "demo.echo", "params": {"message": f"number {place}"}, "labels": {"batch": "yes"}}
    when = [
        {"schedule": "2099-01-01T00:00:00Z"},
        {"schedule": "2099-01-01T00:00:00Z", "priority": place % 100, "queue": "mail"},
        {"schedule": "2099-01-01T00:00:00Z", "retry": {"factor": 3}, "name": f"job {place}"},
        {"schedule": "0 9 * * mon-fri" if place % 20 == 3 else "2099-01-01T00:00:00Z"},
    ]
    return job | when[place % 4]
