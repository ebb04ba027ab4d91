"""A node inside a web application: where it answers, when it starts and ends, and whom it lets in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from structlog.testing import capture_logs

from horae import Horae, every
from horae.app import Role
from horae.core.errors import Misconfigured
from horae.lookup import find_job_by_key
from horae.ports.store import Store
from horae.runtime.asgi import Embedded
from tests.sdk.tasks import declare

ALL: tuple[Role, ...] = ("api", "planner", "worker")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in ("HORAE_AUTH", "HORAE_STORE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kind() -> str:
    """What differs between stores is no matter of where the API is mounted."""
    return "sqlite"


@asynccontextmanager
async def client_of(app: Any, host: str = "127.0.0.1") -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app, client=(host, 50000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def mounted(embedded: Embedded, **options: Any) -> FastAPI:
    api = FastAPI(**options)
    api.mount("/horae", embedded)

    @api.get("/")
    async def hello() -> dict[str, str]:
        return {"says": "hello"}

    return api


async def test_it_lives_with_its_host_and_answers_below_its_path(address: str, app: Horae, store: Store) -> None:
    tasks = declare(app)
    app.schedule(every(hours=1), key="hourly", params={"left": 1})(tasks.add)
    embedded = app.asgi(roles=ALL)
    api = mounted(embedded, lifespan=embedded.lifespan)
    async with api.router.lifespan_context(api), client_of(api) as client:
        assert (await client.get("/")).json() == {"says": "hello"}
        assert (await client.get("/horae/readyz")).status_code == 200
        assert await find_job_by_key(store, "ada", "hourly") is not None  # a worker declares

        created = await client.post("/horae/v1/jobs", json={"task": "add", "params": {"left": 41}})
        assert created.status_code == 201
        assert created.headers["location"] == f"/horae/v1/jobs/{created.json()['id']}"
        shown = await client.get(created.headers["location"])
        assert (shown.status_code, shown.json()["owner"]) == (200, "ada")
        again = await client.post(f"{created.headers['location']}/run")
        assert again.headers["location"] == f"/horae/v1/runs/{again.json()['id']}"

        handle = tasks.add.handle(created.json()["id"])
        assert await handle.result(timeout=20) == 42
        assert await (await tasks.add.submit(1)).result(timeout=20) == 2
        assert (await client.get("/horae/openapi.json")).json()["servers"] == [{"url": "/horae"}]
        assert (await client.get("/horae/nothing")).headers["content-type"] == "application/problem+json"
        assert len(await store.nodes()) == 1
    assert await store.nodes() == []  # it left


async def test_it_starts_with_the_first_request_when_the_host_does_not_start_it(app: Horae, store: Store) -> None:
    declare(app)
    embedded = app.asgi(roles=("api", "worker"))
    api = Starlette(routes=[Mount("/jobs", embedded)])
    with capture_logs() as lines:
        async with api.router.lifespan_context(api), client_of(api) as client:
            assert await store.nodes() == []
            answers = await asyncio.gather(*(client.get("/jobs/readyz") for _ in range(5)))
            assert {answer.status_code for answer in answers} == {200}
            assert len(await store.nodes()) == 1
    assert [line["event"] for line in lines].count("started_by_a_request") == 1
    await embedded.stop()
    assert await store.nodes() == []


async def test_the_api_alone_says_nothing_of_lifespans(app: Horae) -> None:
    embedded = app.asgi()
    with capture_logs() as lines:
        async with client_of(embedded) as client:
            assert (await client.get("/readyz")).status_code == 200
    await embedded.stop()
    assert "started_by_a_request" not in [line["event"] for line in lines]


async def test_served_by_itself_it_follows_the_lifespan_protocol(app: Horae, store: Store) -> None:
    said: list[str] = []
    going = asyncio.Queue[dict[str, str]]()

    async def send(message: Any) -> None:
        said.append(message["type"])

    serving = asyncio.create_task(app.asgi(roles=ALL)({"type": "lifespan"}, going.get, send))
    await going.put({"type": "lifespan.startup"})
    async with asyncio.timeout(20):
        while not said:  # noqa: ASYNC110 - it is told by a call
            await asyncio.sleep(0.01)
        assert len(await store.nodes()) == 1
        await going.put({"type": "lifespan.shutdown"})
        await serving
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert await store.nodes() == []


@pytest.mark.parametrize(("auth", "rebound"), [("settings", 403), ("host", 200)])
async def test_without_authentication_a_page_that_resolves_to_this_machine_is_refused(
    app: Horae, auth: Literal["settings", "host"], rebound: int
) -> None:
    embedded = app.asgi(auth=auth)
    async with client_of(embedded) as client:
        assert (await client.get("/v1/jobs")).status_code == 200
        assert (await client.get("/v1/jobs", headers={"host": "evil.example:8765"})).status_code == rebound
    async with client_of(embedded, "testclient") as client:  # tests of applications name themselves as they like
        assert (await client.get("/v1/jobs", headers={"host": "testserver"})).status_code == 200
    await embedded.stop()


async def test_a_store_that_is_not_there_is_told_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    app = Horae(store=f"sqlite:///{tmp_path}/file/horae.db")
    embedded = app.asgi()
    async with client_of(embedded) as client:
        for _ in range(2):
            answer = await client.get("/v1/jobs")
            assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
            assert "Horae could not start" in answer.json()["detail"]
        (tmp_path / "file").unlink()
        assert (await client.get("/v1/jobs")).status_code == 200
    await embedded.stop()


async def test_without_authentication_only_this_machine_is_answered(app: Horae, address: str) -> None:
    embedded, trusting = app.asgi(), app.asgi(auth="host")
    async with client_of(embedded, "192.0.2.7") as stranger, client_of(embedded) as local:
        refused = await stranger.get("/v1/jobs")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "HORAE_AUTH=jwt" in refused.json()["detail"]
        assert (await local.get("/v1/jobs")).status_code == 200
    async with client_of(trusting, "192.0.2.7") as let_in:
        assert (await let_in.get("/v1/jobs")).status_code == 200
    await embedded.stop()
    await trusting.stop()


async def test_with_authentication_everybody_needs_a_token(app: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_AUTH", "jwt")
    monkeypatch.setenv("HORAE_JWT_SECRET", "s" * 40)
    embedded = app.asgi()
    async with client_of(embedded, "192.0.2.7") as stranger:
        assert (await stranger.get("/v1/jobs")).status_code == 401
    await embedded.stop()


async def test_an_application_acts_for_its_owner_alone(app: Horae, store: Store) -> None:
    tasks = declare(app)
    embedded = app.asgi(auth="host")
    other = declare(Horae(store=app.store, owner="bob"))
    theirs = await other.add.submit(1)
    mine = await tasks.add.submit(1)
    async with client_of(embedded) as client:
        listed = (await client.get("/v1/jobs")).json()["items"]
        assert [job["id"] for job in listed] == [mine.id]
        assert (await client.get(f"/v1/jobs/{theirs.id}")).status_code == 404
        assert (await client.patch("/v1/queues/default", json={"paused": True})).status_code == 403
    await embedded.stop()
    await other.add.bridge.close()


async def test_without_the_api_role_there_is_nothing_to_ask(app: Horae) -> None:
    async with client_of(app.asgi(roles=("worker",))) as client:
        answer = await client.get("/v1/jobs")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    with pytest.raises(Misconfigured, match="choose among api, planner, worker"):
        app.asgi(roles=("boss",))  # type: ignore[arg-type]
