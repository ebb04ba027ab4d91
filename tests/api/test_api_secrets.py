"""Secrets over REST: written, changed and removed, but never read."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.core.model import JobId
from horae.lookup import find_job
from horae.ports.store import Store
from horae.secrets.sealer import Sealer
from horae.stores.sqlite.store import SqliteStore
from tests.api.harness import Api, services_over
from tests.clocks import ManualClock

SEALER = Sealer("a key that is only used in tests")
VALUE = "s3cr3t-t0ken"
REQUEST = {"task": "http.request", "params": {"url": "https://example.com/", "headers": {"X": "1"}}}
SECRETS = {"headers": {"Authorization": VALUE}}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    sqlite = SqliteStore(tmp_path / "horae.db")
    await sqlite.open()
    yield sqlite
    await sqlite.close()


@pytest.fixture
def services(store: Store, clock: ManualClock) -> Services:
    return services_over(store, clock, sealer=SEALER)


async def kept(api: Api, job: dict[str, Any]) -> Any:
    """Return the decrypted secrets of a job in the store."""
    import json

    found = await find_job(api.store, JobId(job["id"].removeprefix("job_")), owner=None)
    assert found is not None
    return None if found.spec.secrets is None else json.loads(SEALER.open(found.spec.secrets))


@pytest.mark.parametrize("schedule", ["2099-01-01T00:00:00Z", "every 10s"])
async def test_secrets_are_taken_and_never_told(api: Api, tmp_path: Path, schedule: str) -> None:
    job = await api.create(**REQUEST, secrets=SECRETS, schedule=schedule)
    assert await kept(api, job) == SECRETS
    assert job["params"] == REQUEST["params"]
    answers = [
        job,
        await api.get(f"/v1/jobs/{job['id']}"),
        await api.get("/v1/jobs"),
        await api.get("/v1/runs"),
        await api.get(f"/v1/jobs/{job['id']}/runs"),
        await api.post(f"/v1/jobs/{job['id']}/run", {}, 202),
        await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"priority": 1}),
    ]
    assert VALUE not in str(answers)
    assert not any("secrets" in answer for answer in answers)
    with closing(sqlite3.connect(tmp_path / "horae.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert VALUE not in str([database.execute(f"SELECT * FROM {table}").fetchall() for table in tables])


async def test_a_run_carries_what_its_worker_needs(api: Api) -> None:
    await api.create(**REQUEST, secrets=SECRETS)
    [run] = await api.hand.claim()
    assert run.spec.secrets is not None
    assert VALUE in SEALER.open(run.spec.secrets)


async def test_a_patch_changes_some_and_null_removes_all(api: Api) -> None:
    job = await api.create(**REQUEST, secrets={"headers": {"A": "value-a", "B": "value-b"}}, schedule="every 1h")
    path = f"/v1/jobs/{job['id']}"
    await api.ask("PATCH", path, 200, json={"priority": 3})
    assert await kept(api, job) == {"headers": {"A": "value-a", "B": "value-b"}}
    await api.ask("PATCH", path, 200, json={"secrets": {"headers": {"A": None, "C": "value-c"}}})
    assert await kept(api, job) == {"headers": {"B": "value-b", "C": "value-c"}}
    await api.ask("PATCH", path, 200, json={"secrets": None})
    assert await kept(api, job) is None


async def test_secrets_that_did_not_change_make_no_new_revision(api: Api) -> None:
    job = await api.create(**REQUEST, secrets=SECRETS, schedule="every 1h")
    same = await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"secrets": SECRETS})
    assert same["revision"] == job["revision"]


async def test_a_job_is_replaced_without_its_secrets_being_sent_again(api: Api) -> None:
    job = await api.create(**REQUEST, secrets=SECRETS, schedule="every 1h", key="k")
    path = f"/v1/jobs/{job['id']}"
    read = await api.get(path)
    await api.ask("PUT", path, 200, json={**read, "priority": 5})
    assert await kept(api, job) == SECRETS
    await api.ask("PUT", "/v1/jobs/by-key/k", 200, json={**REQUEST, "schedule": "every 2h"})
    assert await kept(api, job) == SECRETS
    other = await api.ask("PUT", "/v1/jobs/by-key/k", 201, json={**REQUEST, "schedule": "2099-01-01T00:00:00Z"})
    assert await kept(api, other) == SECRETS
    await api.ask(
        "PUT", "/v1/jobs/by-key/k", 200, json={**REQUEST, "schedule": "2099-01-01T00:00:00Z", "secrets": None}
    )
    assert await kept(api, other) is None


async def test_parameters_and_secrets_must_fit_the_task_together(api: Api) -> None:
    await api.create("http.request", secrets={"url": "https://example.com/?key=secret"})
    refused = await api.post("/v1/jobs", {"task": "http.request", "secrets": {"method": "GET"}}, 422)
    assert [error["pointer"] for error in refused["errors"]] == ["/params/url"]
    wrong = await api.post("/v1/jobs", {**REQUEST, "secrets": {"headers": VALUE, "other": VALUE}}, 422)
    assert {error["pointer"] for error in wrong["errors"]} == {"/secrets/headers", "/secrets/other"}
    assert VALUE not in str(wrong)
    for bad in ([], "text", 7):
        refused = await api.post("/v1/jobs", {**REQUEST, "secrets": bad}, 422)
        assert refused["errors"][0]["pointer"] == "/secrets"
    job = await api.create("http.request", secrets={"url": "https://example.com/"}, schedule="every 1h")
    await api.post(f"/v1/jobs/{job['id']}/run", {"params": {"method": "POST"}}, 202)


async def test_a_dead_letter_keeps_its_secrets_when_it_is_tried_again(api: Api) -> None:
    await api.create("http.request", secrets={"url": "https://example.com/"}, max_retries=0)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    await api.post(f"/v1/runs/run_{run.id}/retry", {"params": {"nonsense": 1}}, 422)
    await api.post(f"/v1/runs/run_{run.id}/retry", {"params": {"method": "POST"}}, 202)
    [again] = await api.hand.claim()
    assert again.spec.secrets is not None
    assert SEALER.open(again.spec.secrets) == '{"url":"https://example.com/"}'


ELSEWHERE = [
    "https://evil.example/",
    "http://example.com/",
    "https://example.com:8443/",
    "https://example.com.evil.example",
]


@pytest.mark.parametrize("url", ELSEWHERE)
async def test_secrets_are_not_sent_to_a_host_that_somebody_chose_later(api: Api, url: str) -> None:
    job = await api.create(**REQUEST, secrets=SECRETS, schedule="every 1h", key="k")
    path, moved = f"/v1/jobs/{job['id']}", {**REQUEST, "params": {"url": url}, "schedule": "every 1h"}
    refusals = [
        await api.ask("PATCH", path, 422, json={"params": {"url": url}}),
        await api.ask("PATCH", path, 422, json={"params": {"url": url}, "secrets": {"headers": {"X": "more"}}}),
        await api.ask("PATCH", path, 422, json={"secrets": {"url": url}}),
        await api.ask("PUT", path, 422, json=moved),
        await api.ask("PUT", "/v1/jobs/by-key/k", 422, json=moved),
        await api.post(f"{path}/run", {"params": {"url": url}}, 422),
    ]
    assert all("were not given for" in refusal["detail"] for refusal in refusals)
    assert await kept(api, job) == SECRETS
    await api.ask("PATCH", path, 200, json={"params": {"url": "https://EXAMPLE.com:443/other", "method": "POST"}})
    again = {"headers": {"Authorization": "another-t0ken"}}
    await api.ask("PATCH", path, 200, json={"params": {"url": url}, "secrets": again})
    assert await kept(api, job) == again
    await api.ask("PUT", path, 200, json={**REQUEST, "schedule": "every 1h", "key": "k", "secrets": SECRETS})
    await api.ask("PATCH", path, 200, json={"params": {"url": url}, "secrets": None})
    assert await kept(api, job) is None


async def test_secrets_of_another_task_are_not_sent_either(api: Api) -> None:
    job = await api.create("my.hook", secrets=SECRETS, schedule="every 1h", allow_unknown_task=True)
    path, moved = f"/v1/jobs/{job['id']}", {"task": "http.request", "params": {"url": "https://evil.example/"}}
    refused = await api.ask("PATCH", path, 422, json=moved)
    assert "were not given for https://evil.example:443" in refused["detail"]
    await api.ask("PATCH", path, 200, json={**moved, "secrets": {"headers": {"Authorization": "another-t0ken"}}})


async def test_a_run_is_not_tried_again_at_another_host(api: Api) -> None:
    await api.create(**REQUEST, secrets=SECRETS, max_retries=0)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    refused = await api.post(f"/v1/runs/run_{run.id}/retry", {"params": {"url": "https://evil.example/"}}, 422)
    assert [error["pointer"] for error in refused["errors"]] == ["/params/url"]
    await api.post(f"/v1/runs/run_{run.id}/retry", {"params": {"url": "https://example.com/else"}}, 202)


async def test_secrets_are_limited(api: Api) -> None:
    await api.post("/v1/jobs", {**REQUEST, "secrets": {"body": "x" * 70_000}}, 413)
    await api.post("/v1/jobs", {**REQUEST, "secrets": {"headers": {str(n): "word" for n in range(201)}}}, 422)


async def test_secrets_that_this_node_cannot_open_are_a_conflict(api: Api, store: Store, clock: ManualClock) -> None:
    job = await api.create(**REQUEST, secrets=SECRETS, schedule="every 1h")
    elsewhere = create_app(services_over(store, clock, sealer=Sealer()))
    transport = httpx2.ASGITransport(elsewhere, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.patch(f"/v1/jobs/{job['id']}", json={"secrets": {"headers": {"A": "b"}}})
        assert (answer.status_code, answer.json()["code"]) == (409, "secrets_locked")
        assert "HORAE_ENCRYPTION_KEY" in answer.json()["detail"]
        anew = await client.put(f"/v1/jobs/{job['id']}", json={**REQUEST, "schedule": "every 1h", "secrets": SECRETS})
        assert anew.status_code == 200
