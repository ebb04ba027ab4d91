"""Who may do what: tokens, scopes, owners, rates, and the shell."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.auth.guard import Guard, guard_of
from horae.api.auth.jwks import KeySet
from horae.api.auth.tokens import TokenVerifier
from horae.api.dispatch.context import Services
from horae.api.http.rate_limit import RateLimit
from horae.config import load_settings
from horae.jobs import dead_letters
from horae.jobs.bulk import acts as bulk_acts
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from horae.stores.sqlite.store import SqliteStore
from tests.api.harness import START, Hand
from tests.api.matrix import (
    CREATING,
    ENTRIES,
    EVERY_SCOPE,
    GUARDED,
    MARKER,
    OPEN_PATHS,
    OWNER,
    STRANGER,
    Matrix,
    World,
    new_jobs,
)
from tests.api.serving import ByName
from tests.api.tokens import AUDIENCE, RSA_KEY, SECRET, by_secret, claims, document, public_jwk
from tests.clocks import ManualClock

NOW = START.timestamp()
NO_FILE = Path("there-is-no-such-file.toml")
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    sqlite = SqliteStore(tmp_path / "horae.db")
    await sqlite.open()
    yield sqlite
    await sqlite.close()


async def published() -> bytes:
    return document(public_jwk(RSA_KEY, "main"))


@pytest.fixture
def guard(clock: ManualClock) -> Guard:
    return Guard(
        TokenVerifier(KeySet(published, fresh_seconds=300), now=lambda: clock.now().timestamp(), audience=AUDIENCE)
    )


@pytest.fixture
async def client(services: Services, guard: Guard) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(services, guard=guard), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
def matrix(client: httpx2.AsyncClient, tmp_path: Path) -> Matrix:
    async def dump() -> dict[str, list[str]]:
        with closing(sqlite3.connect(tmp_path / "horae.db")) as database:
            tables = [name for (name,) in database.execute(TABLES)]
            return {table: sorted(map(repr, database.execute(f"SELECT * FROM {table}"))) for table in tables}

    return Matrix(client, dump, NOW)


@pytest.fixture
async def world(matrix: Matrix, client: httpx2.AsyncClient, hand: Hand) -> World:
    """Ann owns jobs, a waiting run and a dead letter."""
    headers = {"Authorization": f"Bearer {matrix.token(OWNER)}"}
    jobs = []
    for body in new_jobs():
        answer = await client.post("/v1/jobs", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        jobs.append(answer.json()["id"])
    recurring, waiting, failing = jobs
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    runs = (await client.get(f"/v1/jobs/{recurring}/runs", headers=headers)).json()["items"]
    letters = (await client.get("/v1/dead-letters", headers=headers)).json()["items"]
    [letter] = [letter["id"] for letter in letters if letter["job_id"] == failing]
    return World(jobs=(recurring, waiting, failing), runs=(runs[0]["id"],), letter=letter)


# --- every route


def test_only_what_tells_nobody_s_things_is_open() -> None:
    assert {entry.path for entry in ENTRIES if entry.operation.scope is None} == OPEN_PATHS
    assert len(GUARDED) >= 30


async def test_without_a_good_token_nothing_is_told_and_nothing_changes(matrix: Matrix, world: World) -> None:
    for entry in GUARDED:
        await matrix.refuses_bad_tokens(entry, world)


async def test_without_the_scope_nothing_is_told_and_nothing_changes(matrix: Matrix, world: World) -> None:
    for entry in GUARDED:
        await matrix.refuses_missing_scopes(entry, world)


async def test_what_is_another_s_is_as_good_as_absent(matrix: Matrix, world: World) -> None:
    for entry in sorted(GUARDED, key=lambda entry: str(entry) in CREATING):
        await matrix.hides_from_strangers(entry, world)


async def test_owners_are_let_in(matrix: Matrix, world: World) -> None:
    for entry in sorted(GUARDED, key=lambda entry: entry.method == "DELETE"):
        await matrix.lets_owners_in(entry, world)


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_open_routes_need_no_token_and_mind_no_bad_one(
    client: httpx2.AsyncClient, world: World, path: str
) -> None:
    for headers in ({}, {"Authorization": "Bearer garbage"}):
        answer = await client.get(path, headers=headers)
        assert answer.is_success
        assert not any(one in answer.text for one in world.ids)
        assert MARKER not in answer.text or path == "/metrics"  # queues are the operator's, and their depth is a metric


# --- finer points


def bearer(matrix: Matrix, sub: str, scope: str = EVERY_SCOPE, **claimed: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {matrix.token(sub, scope, **claimed)}"}


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs", "/v1/dead-letters", "/v1/events"])
async def test_another_owner_s_lists_are_for_administrators(
    matrix: Matrix, client: httpx2.AsyncClient, world: World, path: str
) -> None:
    asked = {"params": {"owner": OWNER}}
    denied = await client.get(path, headers=bearer(matrix, STRANGER), **asked)
    unheard_of = await client.get(path, headers=bearer(matrix, STRANGER), params={"owner": "nobody"})
    assert (denied.status_code, denied.text) == (403, unheard_of.text)
    method = "HEAD" if path == "/v1/events" else "GET"
    allowed = await client.request(method, path, headers=bearer(matrix, STRANGER, "admin"), **asked)
    assert allowed.status_code == 200
    if method == "GET":
        assert any(one in allowed.text for one in world.ids)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs", "/v1/dead-letters", "/v1/events"])
async def test_every_owner_s_lists_are_for_administrators_whatever_an_owner_is_called(
    services: Services, matrix: Matrix, client: httpx2.AsyncClient, world: World, path: str
) -> None:
    transport = httpx2.ASGITransport(create_app(services, guard=ByName()))
    method = "HEAD" if path == "/v1/events" else "GET"
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as by_name:
        starry = {"Authorization": "Bearer *"}
        own = await by_name.request(method, path, headers=starry)
        assert own.status_code == 200
        assert not any(one in own.text for one in world.ids)
        assert (await by_name.request(method, path, headers=starry, params={"owner": "*"})).status_code == 403
    everybody_s = await client.request(method, path, headers=bearer(matrix, "root", "admin"), params={"owner": "*"})
    assert everybody_s.status_code == 200
    assert method == "HEAD" or any(one in everybody_s.text for one in world.ids)


async def test_another_owner_s_queues_are_for_administrators(
    matrix: Matrix, client: httpx2.AsyncClient, world: World
) -> None:
    async def names(sub: str, scope: str, status: int = 200, **params: str) -> list[str]:
        answer = await client.get("/v1/queues", headers=bearer(matrix, sub, scope), params=params)
        assert answer.status_code == status
        return [queue["name"] for queue in answer.json().get("items", [])]

    for owner in (OWNER, "*", "nobody"):
        await names(STRANGER, EVERY_SCOPE, 403, owner=owner)
    assert MARKER in await names(STRANGER, "admin", owner=OWNER)
    assert MARKER in await names(STRANGER, "admin", owner="*")
    assert MARKER not in await names(STRANGER, "admin", owner=STRANGER)
    assert MARKER in await names(OWNER, EVERY_SCOPE, owner=OWNER)


async def test_filters_do_not_reach_what_is_another_s(matrix: Matrix, client: httpx2.AsyncClient, world: World) -> None:
    for path, params in [
        ("/v1/runs", {"job_id": world.jobs[0]}),
        ("/v1/runs", {"queue": MARKER}),
        ("/v1/jobs", {"key": MARKER}),
        ("/v1/jobs", {"q": MARKER}),
        ("/v1/jobs", {"label": f"label:{MARKER}"}),
        ("/v1/dead-letters", {"task": "demo.fail"}),
        ("/v1/dead-letters", {"group": "error"}),
    ]:
        answer = await client.get(path, headers=bearer(matrix, STRANGER), params=params)
        assert answer.status_code in (200, 404), answer.text
        assert answer.status_code == 404 or answer.json()["items"] == [], (path, params)


async def test_administrators_reach_everybody_s_things(
    matrix: Matrix, client: httpx2.AsyncClient, world: World
) -> None:
    headers = bearer(matrix, "root", "admin")
    for job in world.jobs:
        assert (await client.get(f"/v1/jobs/{job}", headers=headers)).json()["owner"] == OWNER
    patched = await client.patch(f"/v1/jobs/{world.jobs[0]}", json={"priority": 3}, headers=headers)
    assert (patched.json()["owner"], patched.json()["created_by"]) == (OWNER, OWNER)
    own = await client.post("/v1/jobs", json={"task": "demo.echo"}, headers=headers)
    assert own.json()["owner"] == "root"


async def test_the_owner_and_who_acts_may_differ(services: Services, clock: ManualClock) -> None:
    environ = {"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": SECRET, "HORAE_JWT_OWNER_CLAIM": "org"}
    guard = guard_of(load_settings(environ=environ, file=NO_FILE), now=lambda: clock.now().timestamp())
    transport = httpx2.ASGITransport(create_app(services, guard=guard))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {"Authorization": f"Bearer {by_secret(claims(NOW, org='acme'))}"}
        job = (await client.post("/v1/jobs", json={"task": "demo.echo"}, headers=headers)).json()
        assert (job["owner"], job["created_by"]) == ("acme", "ann")


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Basic YW5uOmFubg==")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer  ")],
        [("Authorization", "")],
        [("Authorization", "{token}")],
        [("Authorization", "Bearer {token}"), ("Authorization", "Bearer {token}")],
        [("X-Authorization", "Bearer {token}")],
    ],
)
async def test_a_token_is_sent_once_and_as_a_bearer_token(
    matrix: Matrix, client: httpx2.AsyncClient, headers: list[tuple[str, str]]
) -> None:
    token = matrix.token(OWNER)
    sent = [(name, value.format(token=token)) for name, value in headers]
    assert (await client.get("/v1/jobs", headers=sent)).status_code == 401
    assert (await client.get("/v1/jobs", headers={"Authorization": f"bEARER {token}"})).status_code == 200
    assert (await client.get("/v1/jobs", params={"access_token": token})).status_code == 401


async def test_unknown_routes_are_told_to_everybody(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/nothing")).status_code == 404
    assert (await client.delete("/v1/jobs")).status_code == 405


async def test_a_token_is_good_until_it_expires(matrix: Matrix, client: httpx2.AsyncClient, clock: ManualClock) -> None:
    headers = bearer(matrix, OWNER)
    assert (await client.get("/v1/jobs", headers=headers)).status_code == 200
    clock.advance(seconds=601)
    answer = await client.get("/v1/jobs", headers=headers)
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


async def test_while_there_are_no_keys_the_answer_is_to_try_again(services: Services) -> None:
    async def down() -> bytes:
        from horae.core.errors import Unavailable

        raise Unavailable("the issuer does not answer")

    guard = Guard(TokenVerifier(KeySet(down, fresh_seconds=300), now=lambda: NOW))
    transport = httpx2.ASGITransport(create_app(services, guard=guard))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/jobs", headers={"Authorization": "Bearer a.b.c"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await client.get("/v1/jobs")).status_code == 401
        assert (await client.get("/healthz")).status_code == 200


# --- rates


async def test_whoever_asks_too_often_is_told_when_to_come_back(
    services: Services, guard: Guard, matrix: Matrix
) -> None:
    now = [0.0]
    limited = Guard(guard._tokens, RateLimit(2, elapsed=lambda: now[0]))
    transport = httpx2.ASGITransport(create_app(services, guard=limited))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        statuses = [(await client.get("/v1/jobs", headers=bearer(matrix, OWNER))).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 200, 429]
        refused = await client.post("/v1/jobs", content=b"{", headers=bearer(matrix, OWNER))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["code"] == "rate_limited"
        assert (await client.get("/v1/jobs", headers=bearer(matrix, STRANGER))).status_code == 200
        assert (await client.get("/v1/jobs", headers=bearer(matrix, OWNER, ""))).status_code == 403
        assert (await client.get("/v1/jobs")).status_code == 401
        assert (await client.get("/healthz")).status_code == 200
        now[0] += 1
        assert (await client.get("/v1/jobs", headers=bearer(matrix, OWNER))).status_code == 200


async def test_without_authentication_there_is_a_limit_too(services: Services) -> None:
    guard = guard_of(load_settings(environ={"HORAE_RATE_LIMIT": "1"}, file=NO_FILE), now=lambda: NOW)
    transport = httpx2.ASGITransport(create_app(services, guard=guard))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert [(await client.get("/v1/jobs")).status_code for _ in range(3)] == [200, 200, 429]


# --- the shell


SHELL = {"task": "shell.run", "params": {"command": ["true"]}}
PLAIN = "jobs:read jobs:write admin"  # administrators, too, must be given the shell


async def a_shell_job(client: httpx2.AsyncClient, headers: dict[str, str], **fields: Any) -> str:
    answer = await client.post("/v1/jobs", json={**SHELL, **fields}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
async def test_resuming_a_job_needs_the_scope_of_its_task(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, clock: ManualClock, missed: str
) -> None:
    plain, shell = bearer(matrix, OWNER, PLAIN), bearer(matrix, OWNER)
    job = await a_shell_job(client, shell, schedule="every 1m", catchup_seconds=3600)
    assert (await client.post(f"/v1/jobs/{job}/pause", headers=plain)).json()["status"] == "paused"
    clock.advance(minutes=9)
    answer = await client.post(f"/v1/jobs/{job}/resume", json={"missed": missed}, headers=plain)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
    assert (await client.get(f"/v1/jobs/{job}", headers=plain)).json()["status"] == "paused"
    assert await hand.claim(ahead=60) == []
    allowed = await client.post(f"/v1/jobs/{job}/resume", json={"missed": missed}, headers=bearer(matrix, OWNER))
    assert allowed.json()["status"] == "scheduled"


async def test_no_route_makes_a_run_of_a_program_without_the_scope(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, clock: ManualClock, store: Store
) -> None:
    """Every route of the application, so that a new one cannot be forgotten."""
    shell, programs = bearer(matrix, OWNER), RunFilter(task="shell.run")
    recurring = await a_shell_job(client, shell, schedule="every 10s", key=MARKER)
    once = await a_shell_job(client, shell, schedule="2099-01-01T00:00:00Z")
    failing = await a_shell_job(client, shell, max_retries=0)
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    letter = failing.replace("job", "run")
    world = World(jobs=(recurring, once, failing), runs=(letter,), letter=letter)
    for job in (recurring, once):
        await client.post(f"/v1/jobs/{job}/pause", headers=shell)
    clock.advance(seconds=15)
    before = await store.list_runs(programs, cursor=None, limit=100)
    for entry in sorted(GUARDED, key=lambda entry: ("POST", "GET", "PATCH", "PUT", "DELETE").index(entry.method)):
        for thing in world.things(entry.path):
            await matrix.ask(entry, thing, matrix.token(OWNER, PLAIN), world)
        runs = {run.id for run in (await store.list_runs(programs, cursor=None, limit=100)).items}
        assert runs <= {run.id for run in before.items}, str(entry)
        assert (
            entry.method != "POST" or (await client.get(f"/v1/jobs/{once}", headers=shell)).json()["status"] == "paused"
        )


async def test_a_requeue_that_is_refused_changes_nothing(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CHUNK", 2)
    plain, shell = bearer(matrix, OWNER, PLAIN), bearer(matrix, OWNER)
    await a_shell_job(client, shell, max_retries=0)  # the oldest, so that it comes last in a list
    echo = {"task": "demo.echo", "max_retries": 0}
    for _ in range(5):
        assert (await client.post("/v1/jobs", json=echo, headers=shell)).status_code == 201
    for run in await hand.claim():
        await hand.fail(await hand.start(run))
    letters = [letter["id"] for letter in (await client.get("/v1/dead-letters", headers=plain)).json()["items"]]
    assert len(letters) == 6
    for body in ({"filter": {}}, {"ids": sorted(letters, reverse=True)}):
        answer = await client.post("/v1/dead-letters/requeue", json=body, headers=plain)
        assert answer.status_code == 403, answer.text
        assert len((await client.get("/v1/dead-letters", headers=plain)).json()["items"]) == 6
        assert await hand.claim() == []
    allowed = await client.post("/v1/dead-letters/requeue", json={"filter": {"task": "demo.echo"}}, headers=plain)
    assert allowed.json() == {"matched": 5, "done": 5, "remaining": 0}


@pytest.mark.parametrize("action", ["resume", "run"])
async def test_an_act_on_many_jobs_that_is_refused_changes_nothing(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(bulk_acts, "CHUNK", 2)
    plain, shell = bearer(matrix, OWNER, PLAIN), bearer(matrix, OWNER)
    last = await a_shell_job(client, shell, schedule="every 1h")  # the oldest, so that it comes last in a list
    jobs = [
        (await client.post("/v1/jobs", json={"task": "demo.echo", "schedule": "every 1h"}, headers=shell)).json()["id"]
        for _ in range(5)
    ]
    await client.post("/v1/jobs/bulk", json={"action": "pause", "filter": {}}, headers=plain)
    for which in ({"filter": {}}, {"ids": [*jobs, last]}, {"filter": {}, "dry_run": True}):
        refused = await client.post("/v1/jobs/bulk", json={"action": action, **which}, headers=plain)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), refused.text
        assert len((await client.get("/v1/jobs?status=paused", headers=plain)).json()["items"]) == 6
        assert await hand.claim() == []
    body = {"action": action, "filter": {"task": "demo.echo"}}
    assert (await client.post("/v1/jobs/bulk", json=body, headers=plain)).json()["done"] == 5


async def test_a_retry_of_many_runs_that_is_refused_changes_nothing(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_acts, "CHUNK", 2)
    plain, shell = bearer(matrix, OWNER, PLAIN), bearer(matrix, OWNER)
    await a_shell_job(client, shell, max_retries=0)  # the oldest, so that it comes last in a list
    for _ in range(5):
        await client.post("/v1/jobs", json={"task": "demo.echo", "max_retries": 0}, headers=shell)
    for run in await hand.claim():
        await hand.fail(await hand.start(run))
    refused = await client.post("/v1/runs/bulk", json={"action": "retry", "filter": {}}, headers=plain)
    assert refused.status_code == 403, refused.text
    assert len((await client.get("/v1/dead-letters", headers=plain)).json()["items"]) == 6
    body = {"action": "retry", "filter": {"task": "demo.echo"}}
    assert (await client.post("/v1/runs/bulk", json=body, headers=plain)).json()["done"] == 5


async def test_a_job_that_becomes_a_program_meanwhile_is_left_out(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act has begun and was permitted by then, so it goes on with the others."""
    plain, shell = bearer(matrix, OWNER, "jobs:read jobs:write"), bearer(matrix, OWNER)
    ids = []
    for _ in range(3):
        made = await client.post("/v1/jobs", json={"task": "demo.echo", "schedule": "every 1h"}, headers=shell)
        ids.append(made.json()["id"])
    perform = bulk_acts._perform

    async def patch_first(*args: Any, **keywords: Any) -> Any:
        await client.patch(f"/v1/jobs/{ids[1]}", json=SHELL, headers=shell)
        return await perform(*args, **keywords)

    monkeypatch.setattr(bulk_acts, "_perform", patch_first)
    answer = await client.post("/v1/jobs/bulk", json={"action": "run", "filter": {}}, headers=plain)
    assert answer.json() == {"matched": 3, "done": 2, "remaining": 1, "cursor": None}
    assert {run.spec.task for run in await hand.claim()} == {"demo.echo"}


async def test_nobody_acts_on_many_of_another_owner(matrix: Matrix, client: httpx2.AsyncClient) -> None:
    mine, admin = bearer(matrix, OWNER), bearer(matrix, "root", f"{EVERY_SCOPE} admin")
    stranger = bearer(matrix, STRANGER)
    job = (await client.post("/v1/jobs", json={"task": "demo.echo", "schedule": "every 1h"}, headers=mine)).json()["id"]

    async def act(headers: dict[str, str], **body: Any) -> Any:
        return (await client.post("/v1/jobs/bulk", json={"action": "pause", **body}, headers=headers)).json()

    nothing = {"matched": 0, "done": 0, "remaining": 0, "cursor": None}
    assert await act(stranger, ids=[job]) == await act(stranger, filter={}) == nothing
    assert await act(admin, filter={}) == nothing, "without an owner it is one's own"
    for owner in (OWNER, "*"):
        assert (await act(stranger, filter={"owner": owner}))["code"] == "forbidden"
    assert (await act(admin, filter={"owner": "*"}, dry_run=True))["matched"] == 1
    assert (await act(admin, filter={"owner": OWNER}))["done"] == 1
    assert (await client.get(f"/v1/jobs/{job}", headers=mine)).json()["status"] == "paused"


async def test_programs_need_a_scope_of_their_own(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand, clock: ManualClock
) -> None:
    plain, shell = bearer(matrix, OWNER, PLAIN), bearer(matrix, OWNER)
    later = {**SHELL, "schedule": "every 1h"}
    echo = (await client.post("/v1/jobs", json={"task": "demo.echo", "schedule": "every 1h"}, headers=shell)).json()
    job = (await client.post("/v1/jobs", json={**later, "key": "k"}, headers=shell)).json()
    failing = (await client.post("/v1/jobs", json={**SHELL, "max_retries": 0}, headers=shell)).json()
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    run_id = f"run_{failing['id'].removeprefix('job_')}"
    past = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T01:00:00Z"}
    for method, path, body in [
        ("POST", "/v1/jobs", SHELL),
        ("PATCH", f"/v1/jobs/{echo['id']}", SHELL),
        ("PATCH", f"/v1/jobs/{job['id']}", {"params": {"command": ["false"]}}),
        ("PUT", f"/v1/jobs/{job['id']}", later),
        ("PUT", f"/v1/jobs/{echo['id']}", later),
        ("PUT", "/v1/jobs/by-key/k", later),
        ("PUT", "/v1/jobs/by-key/other", later),
        ("POST", f"/v1/jobs/{job['id']}/run", {}),
        ("POST", f"/v1/jobs/{job['id']}/run", {"nonsense": 1}),
        ("POST", f"/v1/jobs/{job['id']}/backfill", past),
        ("POST", f"/v1/runs/{run_id}/retry", {}),
        ("POST", f"/v1/runs/{run_id}/retry", {"params": {"command": ["false"]}}),
    ]:
        answer = await client.request(method, path, json=body, headers=plain)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path, answer.text)
        assert 'scope="shell"' in answer.headers["www-authenticate"]
    assert (await client.get("/v1/jobs", headers=plain)).json()["items"].__len__() == 3


async def test_a_batch_is_refused_item_by_item(matrix: Matrix, client: httpx2.AsyncClient) -> None:
    jobs = [{"task": "demo.echo"}, SHELL, {"task": "demo.echo"}]
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers=bearer(matrix, OWNER, PLAIN))
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (2, 1)
    assert answer.json()["items"][1]["error"]["status"] == 403
    allowed = await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers=bearer(matrix, OWNER))
    assert allowed.json()["accepted"] == 3


async def test_dead_programs_are_not_raised_without_the_scope(
    matrix: Matrix, client: httpx2.AsyncClient, hand: Hand
) -> None:
    job = (await client.post("/v1/jobs", json={**SHELL, "max_retries": 0}, headers=bearer(matrix, OWNER))).json()
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    body = {"filter": {"job_id": job["id"]}}
    refused = await client.post("/v1/dead-letters/requeue", json=body, headers=bearer(matrix, OWNER, PLAIN))
    assert refused.status_code == 403 or refused.json()["done"] == 0, refused.text
    assert len((await client.get("/v1/dead-letters", headers=bearer(matrix, OWNER))).json()["items"]) == 1
    done = await client.post("/v1/dead-letters/requeue", json=body, headers=bearer(matrix, OWNER))
    assert done.json()["done"] == 1
