"""Tokens that name tasks and a highest priority: every act that makes or changes jobs or runs keeps to both."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from horae.api.auth.guard import Principal
from horae.api.auth.permission import Permission
from horae.api.dispatch.context import Services
from horae.api.http.problems import Forbidden
from horae.core.drafts import Draft
from horae.ports.store import Store
from horae.tasks.builtin import builtin_tasks, echo
from horae.tasks.registry import Registry, TaskFunction
from tests.api.harness import Hand, services_over
from tests.api.tenants import Tenant, tenant, tenants_client
from tests.clocks import ManualClock

ADMIN = "jobs:read jobs:write admin"
PAST = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T01:00:00Z"}


def own_tasks() -> Registry:
    """The built-in tasks, and one whose code says that it is urgent."""
    registry = Registry()
    registry.add(TaskFunction[Any, Any](echo, name="mail.send", priority=5))
    return registry.with_tasks(builtin_tasks())


@pytest.fixture
def services(store: Store, clock: ManualClock) -> Services:
    return services_over(store, clock, own_tasks())


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    async with tenants_client(services) as client:
        yield client


async def acts_on(ann: Tenant, hand: Hand, **fields: Any) -> list[tuple[str, str, Any]]:
    """Every act on existing jobs that makes or changes jobs or runs, with jobs that it is about."""
    job = (await ann.create(schedule="every 1h", key="k", **fields))["id"]
    paused = (await ann.create(schedule="every 1h", **fields))["id"]
    await ann.done("POST", f"/v1/jobs/{paused}/pause")
    failing = (await ann.create(max_retries=0, **fields))["id"]
    [run] = await hand.claim()
    await hand.fail(await hand.start(run))
    letter = failing.replace("job", "run")
    return [
        ("POST", f"/v1/jobs/{job}/run", {}),
        ("POST", f"/v1/jobs/{job}/backfill", PAST),
        ("POST", f"/v1/jobs/{paused}/resume", {"missed": "all"}),
        ("PATCH", f"/v1/jobs/{job}", {"labels": {"a": "b"}}),
        ("POST", f"/v1/runs/{letter}/retry", {}),
        ("POST", "/v1/dead-letters/requeue", {"ids": [letter]}),
        ("POST", "/v1/dead-letters/requeue", {"filter": {}}),
    ]


# --- priorities


@pytest.mark.parametrize(
    ("scope", "claimed", "highest"),
    [
        ("jobs:read jobs:write", {}, 0),
        ("jobs:read jobs:write", {"max_priority": 7}, 7),
        ("jobs:read jobs:write", {"max_priority": -7}, -7),
        (ADMIN, {}, 100),
        (ADMIN, {"max_priority": 7}, 7),
    ],
)
async def test_a_token_has_a_highest_priority_and_that_of_a_tenant_is_0(
    client: httpx2.AsyncClient, scope: str, claimed: dict[str, int], highest: int
) -> None:
    ann = tenant(client, "ann", scope, **claimed)
    for priority in {-100, highest}:
        assert (await ann.create(priority=priority))["priority"] == priority
    if highest < 100:
        problem = await ann.refused(403, "POST", "/v1/jobs", {"task": "demo.echo", "priority": highest + 1})
        assert problem["code"] == "forbidden"
        assert f"up to {highest}, not {highest + 1}" in problem["detail"]
        assert f"max_priority {highest + 1}" in problem["detail"]


async def test_no_act_makes_runs_above_the_highest_priority(client: httpx2.AsyncClient, hand: Hand) -> None:
    ann = tenant(client, "ann")
    for method, path, body in [
        *await acts_on(tenant(client, "ann", max_priority=50), hand, priority=50),
        ("POST", "/v1/jobs", {"task": "demo.echo", "priority": 50}),
        ("PUT", "/v1/jobs/by-key/k", {"task": "demo.echo", "schedule": "every 1h", "priority": 50}),
        ("PUT", "/v1/jobs/by-key/other", {"task": "demo.echo", "schedule": "every 1h", "priority": 50}),
    ]:
        assert "priorities up to 0" in (await ann.refused(403, method, path, body))["detail"], path
    assert await hand.claim(ahead=60) == []


async def test_a_change_that_raises_the_priority_is_refused(client: httpx2.AsyncClient) -> None:
    ann = tenant(client, "ann", max_priority=5)
    job = (await ann.create(schedule="every 1h", priority=5))["id"]
    await ann.refused(403, "PATCH", f"/v1/jobs/{job}", {"priority": 6})
    await ann.refused(403, "PUT", f"/v1/jobs/{job}", {"task": "demo.echo", "schedule": "every 1h", "priority": 6})
    assert (await ann.done("PATCH", f"/v1/jobs/{job}", {"priority": 4}))["priority"] == 4


async def test_whoever_may_no_longer_have_a_priority_can_lower_it(client: httpx2.AsyncClient) -> None:
    job = (await tenant(client, "ann", max_priority=50).create(schedule="every 1h", priority=50))["id"]
    ann = tenant(client, "ann")
    await ann.refused(403, "POST", f"/v1/jobs/{job}/run", {})
    assert (await ann.done("PATCH", f"/v1/jobs/{job}", {"priority": 0}))["priority"] == 0
    await ann.done("POST", f"/v1/jobs/{job}/run", {})


async def test_a_batch_is_refused_job_by_job(client: httpx2.AsyncClient) -> None:
    jobs = [{"task": "demo.echo"}, {"task": "demo.echo", "priority": 1}, {"task": "demo.echo", "priority": -1}]
    answer = await tenant(client, "ann").done("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert [item.get("error", {}).get("status") for item in answer["items"]] == [None, 403, None]


async def test_what_the_code_of_a_task_declares_is_for_every_tenant(client: httpx2.AsyncClient) -> None:
    ann = tenant(client, "ann")
    job = await ann.create("mail.send", schedule="every 1h")
    assert job["priority"] == 5
    await ann.done("POST", f"/v1/jobs/{job['id']}/run", {})
    await ann.done("PATCH", f"/v1/jobs/{job['id']}", {"labels": {"a": "b"}})
    await ann.create("mail.send", priority=5)
    await ann.refused(403, "POST", "/v1/jobs", {"task": "mail.send", "priority": 6})
    await ann.refused(403, "PATCH", f"/v1/jobs/{job['id']}", {"task": "demo.echo"})


async def test_a_node_without_the_code_lets_jobs_keep_their_priority(
    client: httpx2.AsyncClient, store: Store, clock: ManualClock
) -> None:
    job = (await tenant(client, "ann").create("mail.send", schedule="every 1h", key="k"))["id"]
    async with tenants_client(services_over(store, clock, Registry())) as elsewhere:
        ann = tenant(elsewhere, "ann")
        await ann.done("POST", f"/v1/jobs/{job}/run", {})
        assert (await ann.done("PATCH", f"/v1/jobs/{job}", {"labels": {"a": "b"}}))["priority"] == 5
        await ann.refused(403, "PATCH", f"/v1/jobs/{job}", {"priority": 6})
        new = {"task": "mail.send", "priority": 5, "allow_unknown_task": True}
        await ann.refused(403, "POST", "/v1/jobs", new)


# --- tasks


async def test_no_act_runs_a_task_that_the_token_does_not_name(client: httpx2.AsyncClient, hand: Hand) -> None:
    bound = tenant(client, "ann", tasks=["mail.*", "demo.s?eep"])
    for method, path, body in [
        *await acts_on(tenant(client, "ann"), hand),
        ("POST", "/v1/jobs", {"task": "demo.echo"}),
        ("PUT", "/v1/jobs/by-key/k", {"task": "demo.echo", "schedule": "every 1h"}),
    ]:
        problem = await bound.refused(403, method, path, body)
        assert "does not allow the task demo.echo; its tasks are: mail.*, demo.s?eep" in problem["detail"], path
    assert await hand.claim(ahead=60) == []


async def test_a_token_runs_the_tasks_that_it_names(client: httpx2.AsyncClient) -> None:
    bound = tenant(client, "ann", tasks=["mail.*", "demo.s?eep"])
    job = (await bound.create("mail.send", schedule="every 1h"))["id"]
    await bound.create("demo.sleep", params={"seconds": 1})
    await bound.refused(403, "PATCH", f"/v1/jobs/{job}", {"task": "demo.echo"})
    await bound.refused(403, "POST", "/v1/jobs", {"task": "mail"})
    await bound.done("GET", "/v1/jobs")


@pytest.mark.parametrize("scope", ["jobs:read jobs:write", ADMIN])
async def test_a_token_that_names_no_task_runs_none(client: httpx2.AsyncClient, scope: str) -> None:
    problem = await tenant(client, "ann", scope, tasks=[]).refused(403, "POST", "/v1/jobs", {"task": "demo.echo"})
    assert "its tasks are: none" in problem["detail"]


def test_a_token_with_many_patterns_costs_a_large_batch_little() -> None:
    who = Principal(owner="ann", subject="ann", tasks=tuple(f"team{number}.*" for number in range(200)))
    permit, began = Permission(who, lambda task: None), time.process_time()
    for _ in range(10_000):
        permit(Draft(task="team199.mail.send"))
    assert time.process_time() - began < 0.25
    with pytest.raises(Forbidden, match=r"its tasks are: team0\.\*, .*, team9\.\* and 190 more$"):
        permit(Draft(task="mail.send"))


async def test_naming_the_shell_does_not_grant_it(client: httpx2.AsyncClient) -> None:
    job = {"task": "shell.run", "params": {"command": ["true"]}}
    problem = await tenant(client, "ann", tasks=["*"]).refused(403, "POST", "/v1/jobs", job)
    assert "scope shell" in problem["detail"]


# --- wrong claims


@pytest.mark.parametrize(
    "claimed",
    [
        {"tasks": "mail.*"},
        {"tasks": [1]},
        {"tasks": [""]},
        {"tasks": ["a"] * 201},
        {"max_priority": "5"},
        {"max_priority": 101},
        {"max_priority": True},
        {"max_priority": 1.5},
    ],
    ids=str,
)
async def test_a_wrong_claim_allows_nothing(client: httpx2.AsyncClient, claimed: dict[str, Any]) -> None:
    problem = await tenant(client, "ann", **claimed).refused(401, "GET", "/v1/jobs")
    assert f"$.{next(iter(claimed))}" in problem["detail"]
