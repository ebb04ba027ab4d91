"""Replacing jobs by their id or key."""

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from horae.core.events import EventKind
from horae.core.model import OnFailure, Policy
from tests import acts
from tests.api.harness import START, Api
from tests.conformance.builders import one_shot


async def put(api: Api, job: Any, body: Any, status: int = 200, **headers: str) -> Any:
    return await api.ask("PUT", f"/v1/jobs/{job['id']}", status, json=body, headers=headers)


async def by_key(api: Api, key: str, body: Any, status: int = 200, **headers: str) -> Any:
    return await api.ask("PUT", f"/v1/jobs/by-key/{quote(key, safe='')}", status, json=body, headers=headers)


async def events(api: Api) -> list[str]:
    """Return the events of jobs in order."""
    batches = await api.store.events.read(after=None, owner=None, limit=1000)
    return [batch.kind for batch in batches for _ in batch.subjects if batch.kind.startswith("job.")]


# --- by id


async def test_a_replaced_job_has_defaults_where_nothing_is_said(api: Api) -> None:
    job = await api.create(
        schedule="every 1h", name="old", labels={"a": "1"}, priority=7, max_retries=9, params={"message": "old"}
    )
    changed = await put(api, job, {"task": "demo.echo", "schedule": "0 9 * * *", "name": "new"})
    assert (changed["name"], changed["labels"], changed["priority"]) == ("new", {}, 0)
    assert (changed["max_retries"], changed["params"]) == (3, {})
    assert changed["schedule"] == {"type": "cron", "expression": "0 9 * * *"}
    assert (changed["id"], changed["created_at"], changed["revision"]) == (job["id"], job["created_at"], 2)
    assert await api.get(f"/v1/jobs/{job['id']}") == changed


async def test_what_blocks_after_a_failure_keeps_its_ordering_key(api: Api) -> None:
    job = await api.create(schedule="@daily", ordering_key="o", on_failure="block")
    path = f"/v1/jobs/{job['id']}"
    problem = await api.ask("PATCH", path, 422, json={"ordering_key": None})
    assert [error["pointer"] for error in problem["errors"]] == ["/on_failure"]
    await api.ask("PATCH", path, 200, json={"ordering_key": None, "on_failure": None})
    await api.ask("PATCH", path, 422, json={"on_failure": "block"})


async def test_a_job_that_asked_to_block_nothing_before_that_was_refused_can_be_changed(api: Api) -> None:
    policy = Policy(on_failure=OnFailure.BLOCK)
    run = one_shot(START + timedelta(hours=1), task="demo.echo", params="{}", policy=policy, owner="local")
    await acts.create(api.store, [run])
    changed = await api.ask("PATCH", f"/v1/jobs/job_{run.job_id}", 200, json={"name": "old"})
    assert (changed["name"], changed["on_failure"]) == ("old", "block")


async def test_what_was_read_can_be_changed_and_sent_back(api: Api) -> None:
    job = await api.create(
        schedule={"type": "every", "seconds": 60, "jitter_seconds": 5},
        key="sent-back",
        ordering_key="o",
        on_failure="block",
        timeout_seconds=3,
        retry={"factor": 4},
        start_within_seconds=9,
        overlap="allow",
        misfire="all",
        catchup_seconds=8,
    )
    assert job["on_failure"] == "block"
    same = await put(api, job, job)
    assert same == job, "nothing changes, so there is no new revision"
    changed = await put(api, job, {**job, "priority": 3})
    assert {**changed, "revision": 1, "priority": 0, "updated_at": job["updated_at"]} == job
    assert (changed["revision"], changed["priority"]) == (2, 3)


async def test_the_key_of_a_job_stays_when_it_is_replaced(api: Api) -> None:
    job = await api.create(schedule="every 1h", key="mine")
    assert (await put(api, job, {"task": "demo.sleep", "params": {"seconds": 1}, "schedule": "every 1h"}))[
        "key"
    ] == "mine"
    problem = await put(api, job, {"task": "demo.echo", "key": "other"}, 422)
    assert problem["errors"][0]["pointer"] == "/key"
    unkeyed = await api.create(schedule="every 1h")
    await put(api, unkeyed, {"task": "demo.echo", "schedule": "every 1h", "key": "new"}, 422)


async def test_a_replacement_needs_the_revision_that_it_names(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    body = {"task": "demo.echo", "schedule": "every 1h", "name": "b"}
    await put(api, job, body, 412, **{"If-Match": '"2"'})
    await put(api, job, body, 412, **{"If-Match": 'W/"1"'})
    await put(api, job, {"task": 7}, 412, **{"If-Match": '"2"'})
    assert (await put(api, job, body, **{"If-Match": '"1"'}))["revision"] == 2
    assert (await put(api, job, {**body, "name": "c"}, **{"If-Match": "*"}))["revision"] == 3


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "/task"),
        ({"task": "demo.echo", "nme": "x"}, 422, "/nme"),
        ({"task": "demo.echo"}, 422, "/schedule"),
        ({"task": "demo.echo", "schedule": "every 1h", "params": {"message": 7}}, 422, "/params/message"),
        ({"task": "nobody.knows", "schedule": "every 1h"}, 422, "/task"),
        ({"task": "demo.echo", "schedule": "every 1h", "idempotency_key": "x"}, 422, "/idempotency_key"),
        ([], 422, None),
    ],
)
async def test_a_wrong_replacement_changes_nothing(api: Api, body: Any, status: int, pointer: str | None) -> None:
    job = await api.create(schedule="every 1h")
    problem = await put(api, job, body, status)
    assert [error["pointer"] for error in problem["errors"]][:1] == ([] if pointer is None else [pointer])
    assert await api.get(f"/v1/jobs/{job['id']}") == job


async def test_a_job_that_is_over_is_not_replaced(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    await put(api, job, {"task": "demo.echo", "schedule": "every 1h"}, 409)
    await put(api, {"id": "job_" + "0" * 32}, {}, 404)


async def test_a_one_shot_is_replaced_until_it_begins(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T13:00:00Z")
    changed = await put(api, job, {"task": "demo.echo", "schedule": "2026-03-01T12:00:10Z", "params": {"message": "x"}})
    assert (changed["next_run_at"], changed["revision"]) == ("2026-03-01T12:00:10Z", 2)
    api.clock.advance(seconds=10)
    [run] = await api.hand.claim()
    await api.hand.start(run)
    await put(api, job, {"task": "demo.echo"}, 409)


# --- by key


async def test_a_key_is_given_to_a_new_job_or_changes_the_one_that_has_it(api: Api) -> None:
    body = {"task": "demo.echo", "schedule": "0 9 * * *", "labels": {"a": "b"}}
    job = await by_key(api, "nightly", body, 201)
    assert (job["key"], job["revision"]) == ("nightly", 1)
    assert await by_key(api, "nightly", body) == job, "unchanged: no new revision"
    changed = await by_key(api, "nightly", {**body, "priority": 1})
    assert (changed["id"], changed["priority"], changed["revision"]) == (job["id"], 1, 2)
    assert await events(api) == [EventKind.JOB_CREATED, EventKind.JOB_UPDATED]


async def test_an_interval_without_an_anchor_is_unchanged_when_it_is_said_again(api: Api) -> None:
    body = {"task": "demo.echo", "schedule": "every 10m", "params": {"message": "a"}}
    job = await by_key(api, "k", body, 201)
    api.clock.advance(minutes=3)
    assert (await by_key(api, "k", body))["schedule"] == job["schedule"]
    spaced = '{"task": "demo.echo", "schedule": {"type": "every", "seconds": 600}, "params": {  "message" : "a"}}'
    answer = await api.client.put("/v1/jobs/by-key/k", content=spaced)
    assert (answer.status_code, answer.json()["revision"]) == (200, 1)
    assert (await by_key(api, "k", {**body, "schedule": "every 5m"}))["schedule"]["anchor"] == "2026-03-01T12:03:00Z"


async def test_a_key_may_hold_anything_but_nothing(api: Api) -> None:
    for key in ("a/b", "ü 1?#%", "run", "x" * 200):
        job = await by_key(api, key, {"task": "demo.echo", "schedule": "every 1h"}, 201)
        assert job["key"] == key
        assert (await by_key(api, key, {"task": "demo.echo", "schedule": "every 1h", "key": key}))["id"] == job["id"]
    await by_key(api, "x" * 201, {"task": "demo.echo"}, 422)
    await by_key(api, "a", {"task": "demo.echo", "key": "b"}, 422)
    await by_key(api, "a\0", {"task": "demo.echo"}, 422)
    answer = await api.client.put("/v1/jobs/by-key/", json={"task": "demo.echo"})
    assert answer.status_code in (404, 405, 422)


async def test_a_job_that_is_over_leaves_its_key_to_the_next(api: Api) -> None:
    job = await by_key(api, "k", {"task": "demo.echo", "schedule": "every 1h"}, 201)
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    other = await by_key(api, "k", {"task": "demo.echo", "schedule": "every 1h"}, 201)
    assert other["id"] != job["id"]


async def test_a_job_of_another_kind_takes_over_the_key(api: Api) -> None:
    recurring = await by_key(api, "k", {"task": "demo.echo", "schedule": "every 1h"}, 201)
    once = await by_key(api, "k", {"task": "demo.echo", "schedule": "2026-03-02T00:00:00Z"}, 201)
    assert (await api.get(f"/v1/jobs/{recurring['id']}"))["status"] == "cancelled"
    again = await by_key(api, "k", {"task": "demo.echo", "schedule": "every 2h"}, 201)
    assert (await api.get(f"/v1/jobs/{once['id']}"))["status"] == "cancelled"
    assert [item["id"] for item in (await api.get("/v1/jobs?key=k&status=scheduled"))["items"]] == [again["id"]]
    problem = await by_key(api, "k", {"task": "demo.echo", "params": {"message": 1}}, 422)
    assert problem["errors"][0]["pointer"] == "/params/message"
    assert (await api.get(f"/v1/jobs/{again['id']}"))["status"] == "scheduled", "a mistake costs nothing"


async def test_a_one_shot_that_has_begun_is_not_replaced(api: Api) -> None:
    body = {"task": "demo.echo", "schedule": "now"}
    job = await by_key(api, "k", body, 201)
    [run] = await api.hand.claim()
    await api.hand.start(run)
    assert (await by_key(api, "k", body))["id"] == job["id"], "it is what is asked for already"
    await by_key(api, "k", {**body, "priority": 1}, 409)
    await by_key(api, "k", {**body, "schedule": "every 1h"}, 409)


async def test_conditions_hold_for_keys_too(api: Api) -> None:
    body = {"task": "demo.echo", "schedule": "every 1h"}
    await by_key(api, "k", body, 412, **{"If-Match": "*"})
    await by_key(api, "k", body, 201, **{"If-None-Match": "*"})
    await by_key(api, "k", body, 412, **{"If-None-Match": "*"})
    await by_key(api, "k", {**body, "name": "x"}, 412, **{"If-Match": '"2"'})
    assert (await by_key(api, "k", {**body, "name": "x"}, **{"If-Match": '"1"'}))["revision"] == 2


async def test_a_key_that_many_ask_for_at_once_belongs_to_one_job(api: Api) -> None:
    jobs = await asyncio.gather(
        *(
            api.client.put(
                "/v1/jobs/by-key/k", json={"task": "demo.echo", "schedule": "every 1h", "name": f"n{number}"}
            )
            for number in range(8)
        )
    )
    assert sorted(answer.status_code for answer in jobs) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in jobs}) == 1
    assert (await api.get("/v1/jobs?key=k"))["items"][0]["revision"] == 8


async def test_listeners_are_told_of_every_change(api: Api) -> None:
    for schedule in ("every 1h", "2026-03-01T13:00:00Z"):
        job = await api.create(schedule=schedule)
        await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"name": "x"})
        await api.post(f"/v1/jobs/{job['id']}/pause")
        await api.post(f"/v1/jobs/{job['id']}/resume")
        await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    lifecycle = ["job.created", "job.updated", "job.paused", "job.resumed"]
    assert await events(api) == [*lifecycle, "job.cancelled", *lifecycle], (
        "the end of a one-shot is lifecycle by its run"
    )
