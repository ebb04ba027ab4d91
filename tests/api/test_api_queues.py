"""Queues: figures for an autoscaler, pausing and limiting."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.harness import Api


async def queues(api: Api) -> dict[str, Any]:
    return {item["name"]: item for item in (await api.get("/v1/queues"))["items"]}


async def change(api: Api, name: str, body: Any, status: int = 200) -> Any:
    return await api.ask("PATCH", f"/v1/queues/{name}", status, json=body)


async def test_queues_tell_what_waits_and_how_late_it_gets(api: Api) -> None:
    assert await queues(api) == {}
    for queue in ("default", "mail", "mail"):
        await api.create(queue=queue)
    await api.create(queue="mail", schedule="2026-03-01T13:00:00Z")
    api.clock.advance(seconds=2)
    [first, *_] = [run for run in await api.hand.claim() if run.spec.queue == "mail"]
    started = await api.hand.start(first)
    found = await queues(api)
    assert found["default"] == {
        "name": "default",
        "depth": 1,
        "oldest_age_seconds": 2.0,
        "running": 0,
        "lateness_p99_ms": None,
        "paused": False,
        "concurrency": None,
    }
    assert (found["mail"]["depth"], found["mail"]["running"], found["mail"]["oldest_age_seconds"]) == (1, 1, 2.0)
    await api.hand.succeed(started)
    assert (await queues(api))["mail"]["lateness_p99_ms"] == 2000.0


async def test_queues_in_which_nothing_is_left_are_listed_with_their_settings_by_one_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await api.create(queue=f"q{number}")
    await change(api, "q3", {"concurrency": 7})
    for run in await api.hand.claim():
        await api.hand.succeed(await api.hand.start(run))
    await change(api, "q3", {"concurrency": None, "paused": True})
    reads, records = 0, api.store.records

    async def counted(*args: Any, **keywords: Any) -> Any:
        nonlocal reads
        reads += 1
        return await records(*args, **keywords)

    monkeypatch.setattr(api.store, "records", counted)
    found = await queues(api)
    assert {name: each["paused"] for name, each in found.items()} == {f"q{n}": n == 3 for n in range(5)}
    assert reads <= 1


async def test_a_paused_queue_gives_nothing_until_it_goes_on(api: Api) -> None:
    job = await api.create(queue="mail")
    paused = await change(api, "mail", {"paused": True})
    assert (paused["name"], paused["paused"], paused["depth"]) == ("mail", True, 1)
    assert await api.hand.claim() == []
    why = await api.get(f"/v1/runs/{job['id'].replace('job', 'run')}/why")
    assert why["reason"] == "queue_paused"
    assert (await change(api, "mail", {"paused": False}))["paused"] is False
    assert len(await api.hand.claim()) == 1


async def test_the_concurrency_of_a_queue_is_kept(api: Api) -> None:
    for _ in range(3):
        await api.create(queue="mail")
    assert (await change(api, "mail", {"concurrency": 1}))["concurrency"] == 1
    [run] = await api.hand.claim()
    await api.hand.start(run)
    assert await api.hand.claim() == []
    assert (await change(api, "mail", {"paused": True}))["concurrency"] == 1, "what is not named stays"
    assert (await change(api, "mail", {"concurrency": None, "paused": False}))["concurrency"] is None
    assert len(await api.hand.claim()) == 2


async def test_two_who_change_a_queue_at_one_instant_both_get_their_way(api: Api) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        arrived.set()
        await go_on.wait()
        yield b'{"paused": true}'

    headers = {"content-type": "application/json"}
    slow = asyncio.create_task(api.client.patch("/v1/queues/mail", content=slowly(), headers=headers))
    await arrived.wait()
    assert (await change(api, "mail", {"concurrency": 3}))["concurrency"] == 3
    go_on.set()
    answered = (await slow).json()
    assert (answered["paused"], answered["concurrency"]) == (True, 3)
    assert ((await queues(api))["mail"]["paused"], (await queues(api))["mail"]["concurrency"]) == (True, 3)


async def test_a_queue_may_be_set_up_before_it_has_runs(api: Api) -> None:
    assert await change(api, "new", {"concurrency": 5}) == {
        "name": "new",
        "depth": 0,
        "oldest_age_seconds": None,
        "running": 0,
        "lateness_p99_ms": None,
        "paused": False,
        "concurrency": 5,
    }
    assert (await queues(api))["new"]["concurrency"] == 5
    assert (await change(api, "new", {}))["concurrency"] == 5


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"concurrency": 0}, "/concurrency"),
        ({"concurrency": 1.5}, "/concurrency"),
        ({"concurrency": "1"}, "/concurrency"),
        ({"paused": None}, "/paused"),
        ({"paused": "yes"}, "/paused"),
        ({"pause": True}, "/pause"),
        ([], None),
    ],
)
async def test_a_wrong_change_is_refused(api: Api, body: Any, pointer: str | None) -> None:
    problem = await change(api, "mail", body, 422)
    assert [error["pointer"] for error in problem["errors"]][:1] == ([] if pointer is None else [pointer])
    assert await queues(api) == {}


@pytest.mark.parametrize("name", ["no%20such%20name", "%00", "x" * 101, "a%0A"])
async def test_a_name_that_no_queue_can_have_names_nothing(api: Api, name: str) -> None:
    await change(api, name, {"paused": True}, 404)
