"""Every route with every kind of bad token, against real servers: the right code, no leak, no change."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.acceptance.conftest import ReportFigure
from tests.api.matrix import CREATING, GUARDED, OWNER, Matrix, World, new_jobs
from tests.api.tokens import AUDIENCE, RSA_KEY, by_key, claims, document, public_jwk
from tests.system.cluster import Server
from tests.system.fixtures import OpenCluster
from tests.system.rest import FINAL
from tests.system.waiting import eventually

pytestmark = pytest.mark.acceptance

BEATS = ("nodes",)  # what a living node writes by itself
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
POSTGRES_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"

Dump = Callable[[], Awaitable[dict[str, list[str]]]]


def test_every_route_is_guarded(
    new_cluster: OpenCluster, kind: str, tmp_path: Path, report_figure: ReportFigure
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(document(public_jwk(RSA_KEY, "main")))
    cluster = new_cluster(kind, HORAE_AUTH="jwt", HORAE_JWKS=str(keys), HORAE_JWT_AUDIENCE=AUDIENCE)
    world = _world(cluster.node())
    server = cluster.node("api")
    asked = asyncio.run(_check_every_route(server.url or "", cluster.store, world))
    report_figure(f"{len(GUARDED)} operations, {asked} requests")
    assert "Bearer" not in server.output()
    assert "eyJ" not in server.output()  # no token in the log, either


async def _check_every_route(url: str, store: str, world: World) -> int:
    """Return how many requests were sent."""
    asked = 0

    async def count(request: httpx2.Request) -> None:
        nonlocal asked
        asked += 1

    hooks: dict[str, list[Any]] = {"request": [count]}
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30, event_hooks=hooks) as client:
        matrix = Matrix(client, _dump_of(store), time.time())
        for entry in GUARDED:
            await matrix.refuses_bad_tokens(entry, world)
            await matrix.refuses_missing_scopes(entry, world)
        for entry in sorted(GUARDED, key=lambda entry: str(entry) in CREATING):
            await matrix.hides_from_strangers(entry, world)
        for entry in sorted(GUARDED, key=lambda entry: entry.method == "DELETE"):
            await matrix.lets_owners_in(entry, world)
    return asked


def test_programs_need_their_switch_and_their_scope_and_get_a_clean_environment(
    new_cluster: OpenCluster, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(document(public_jwk(RSA_KEY, "main")))
    common = {"HORAE_AUTH": "jwt", "HORAE_JWKS": str(keys), "DATABASE_PASSWORD": "not-for-programs"}
    allowed = new_cluster("sqlite", **common)
    body = {"task": "shell.run", "params": {"command": ["env"]}, "max_retries": 0}
    with _client(allowed.node(), "jobs:read jobs:write admin") as client:
        assert client.post("/v1/jobs", json=body).status_code == 403
        assert client.get("/v1/jobs").json()["items"] == []
    with _client(allowed.servers[0], "jobs:read jobs:write shell") as client:
        run = _ended(client, client.post("/v1/jobs", json=body).json()["id"])
    assert run["status"] == "succeeded", run
    names = {line.partition("=")[0] for line in run["result"]["output"].splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "TZ"} | {
        "HORAE_RUN_ID", "HORAE_JOB_ID", "HORAE_ATTEMPT", "HORAE_DUE_AT", "HORAE_FENCE"
    }  # fmt: skip
    forbidden = new_cluster("postgres", **common, HORAE_ALLOW_SHELL="0")
    with _client(forbidden.node(), "jobs:read jobs:write shell") as client:
        run = _ended(client, client.post("/v1/jobs", json=body).json()["id"])
    assert (run["status"], "HORAE_ALLOW_SHELL=1" in run["error"]["message"]) == ("failed", True)


def _world(server: Server) -> World:
    """Jobs and runs of one owner, created by a node that has stopped."""
    with _client(server, "jobs:read jobs:write") as client:
        answers = [client.post("/v1/jobs", json=body) for body in new_jobs()]
        assert [answer.status_code for answer in answers] == [201] * 3, [answer.text for answer in answers]
        recurring, waiting, failing = (answer.json()["id"] for answer in answers)
        eventually(lambda: client.get("/v1/dead-letters").json()["items"], "a dead letter", within=30)
        [letter] = client.get("/v1/dead-letters").json()["items"]
        runs = client.get(f"/v1/jobs/{recurring}/runs", params={"status": "scheduled"}).json()["items"]
    server.stop(within=30)
    return World(jobs=(recurring, waiting, failing), runs=(runs[0]["id"],), letter=letter["id"])


def _client(server: Server, scope: str) -> httpx2.Client:
    token = by_key(claims(time.time(), OWNER, scope))
    return httpx2.Client(base_url=server.url or "", headers={"Authorization": f"Bearer {token}"}, trust_env=False)


def _ended(client: httpx2.Client, job: str) -> Any:
    run = f"/v1/runs/run_{job.removeprefix('job_')}"
    eventually(lambda: client.get(run).json()["status"] in FINAL, "the end of the run", within=30)
    return client.get(run).json()


def _dump_of(store: str) -> Dump:
    async def sqlite() -> dict[str, list[str]]:
        with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as database:
            tables = [name for (name,) in database.execute(TABLES) if name not in BEATS]
            return {table: sorted(map(repr, database.execute(f"SELECT * FROM {table}"))) for table in tables}

    async def postgres() -> dict[str, list[str]]:
        connection = await asyncpg.connect(store)
        try:
            tables = [row[0] for row in await connection.fetch(POSTGRES_TABLES) if row[0] not in BEATS]
            return {
                table: sorted(row[0] for row in await connection.fetch(f"SELECT t::text FROM {table} AS t"))
                for table in tables
            }
        finally:
            await connection.close()

    return sqlite if store.startswith("sqlite") else postgres
