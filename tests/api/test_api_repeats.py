"""Idempotency-Key: a repeated request is executed once and gets the same response."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from horae.core.errors import InFlight, Unavailable
from horae.core.model import Run
from horae.core.records import IDEMPOTENCY_LIFE
from horae.jobs.create import BATCH
from horae.jobs.idempotency import Ask, Idempotency
from tests.acts import act_of
from tests.api.harness import Api


async def ask(api: Api, path: str, body: Any, key: str | None = "k") -> httpx2.Response:
    return await api.client.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})


async def jobs_of(api: Api) -> int:
    return len((await api.get("/v1/jobs?limit=1000"))["items"])


def is_same(first: httpx2.Response, again: httpx2.Response) -> bool:
    headers = ("etag", "location", "content-type")
    assert "idempotency-replayed" not in first.headers
    return (
        again.headers["idempotency-replayed"] == "true"
        and again.status_code == first.status_code
        and again.content == first.content
        and all(again.headers.get(name) == first.headers.get(name) for name in headers)
    )


ECHO = {"task": "demo.echo", "params": {"message": "größer"}}


async def test_a_repeated_create_makes_one_job(api: Api) -> None:
    first = await ask(api, "/v1/jobs", ECHO)
    assert first.status_code == 201
    api.clock.advance(minutes=5)
    assert is_same(first, await ask(api, "/v1/jobs", ECHO))
    assert await jobs_of(api) == 1
    assert (await ask(api, "/v1/jobs", ECHO, "other")).json()["id"] != first.json()["id"]
    assert (await ask(api, "/v1/jobs", ECHO, None)).json()["id"] != first.json()["id"]


async def test_a_repeated_create_is_answered_as_before_whatever_became_of_the_job(api: Api) -> None:
    body = {"task": "demo.echo", "key": "mine"}
    first = await ask(api, "/v1/jobs", body)
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))
    assert is_same(first, await ask(api, "/v1/jobs", body))
    assert (await ask(api, "/v1/jobs", body, "later")).status_code == 201


async def test_a_key_belongs_to_one_request(api: Api) -> None:
    job = (await ask(api, "/v1/jobs", {"task": "demo.echo"})).json()
    for path, body in (
        ("/v1/jobs", {"task": "demo.echo", "priority": 1}),
        ("/v1/jobs/batch", {"jobs": []}),
        (f"/v1/jobs/{job['id']}/run", {}),
    ):
        answer = await ask(api, path, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused"), path
    assert await jobs_of(api) == 1


async def test_a_key_is_kept_for_a_day(api: Api) -> None:
    first = await ask(api, "/v1/jobs", ECHO)
    api.clock.advance(seconds=IDEMPOTENCY_LIFE.total_seconds() - 1)
    assert is_same(first, await ask(api, "/v1/jobs", ECHO))
    api.clock.advance(seconds=2)
    again = await ask(api, "/v1/jobs", {**ECHO, "priority": 2})
    assert (again.status_code, again.json()["id"] != first.json()["id"]) == (201, True)


async def test_what_was_refused_may_be_asked_for_again(api: Api) -> None:
    assert (await ask(api, "/v1/jobs", {"task": "demo.ecko"})).status_code == 422
    assert (await ask(api, "/v1/jobs", {"task": "demo.echo"})).status_code == 201
    await api.create(key="taken", schedule="every 1h")
    assert (await ask(api, "/v1/jobs", {"task": "demo.echo", "key": "taken"}, "x")).status_code == 409
    assert (await ask(api, "/v1/jobs", {"task": "demo.echo", "key": "free"}, "x")).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a\tb", b"\xc3\xbc", b"\x7f"])
async def test_a_key_that_is_none_is_refused(api: Api, key: str | bytes) -> None:
    answer = await api.client.post(
        "/v1/jobs", json=ECHO, headers=[(b"Idempotency-Key", key if isinstance(key, bytes) else key.encode())]
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert await jobs_of(api) == 0


async def test_two_keys_are_refused(api: Api) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert (await api.client.post("/v1/jobs", json=ECHO, headers=headers)).status_code == 422


async def test_requests_at_the_same_time_make_one_job(api: Api) -> None:
    answers = await asyncio.gather(*(ask(api, "/v1/jobs", ECHO) for _ in range(40)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert await jobs_of(api) == 1


async def test_different_requests_at_the_same_time_share_no_key(api: Api) -> None:
    answers = await asyncio.gather(*(ask(api, "/v1/jobs", {**ECHO, "priority": number % 2}) for number in range(20)))
    assert sorted({answer.status_code for answer in answers}) == [201, 422]
    assert await jobs_of(api) == 1


async def test_a_recurring_job_is_created_once(api: Api) -> None:
    body = {"task": "demo.echo", "schedule": "* * * * * *"}
    first = await ask(api, "/v1/jobs", body)
    runs = len((await api.get("/v1/runs"))["items"])
    assert is_same(first, await ask(api, "/v1/jobs", body))
    assert len((await api.get("/v1/runs"))["items"]) == runs > 0


async def test_a_repeated_run_is_one_run(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    path = f"/v1/jobs/{job['id']}/run"
    answers = await asyncio.gather(*(ask(api, path, {"params": {"message": "x"}}) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert len((await api.get(f"/v1/jobs/{job['id']}/runs"))["items"]) == 1
    assert (await ask(api, "/v1/jobs/job_" + "0" * 32 + "/run", {})).status_code == 404


async def test_keys_of_acts_that_create_nothing_are_ignored(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    for path in ("pause", "pause", "resume"):
        answer = await ask(api, f"/v1/jobs/{job['id']}/{path}", {})
        assert (answer.status_code, "idempotency-replayed" in answer.headers) == (200, False)
    assert (await ask(api, "/v1/schedules/preview", {"schedule": "@daily"})).status_code == 200


# --- batches


THREE = {"jobs": [{"task": "demo.echo"}, {"task": "nobody.knows"}, {"task": "demo.echo", "schedule": "every 1h"}]}


async def test_a_repeated_batch_is_answered_as_before(api: Api) -> None:
    first = await ask(api, "/v1/jobs/batch", THREE)
    assert (first.status_code, first.json()["accepted"]) == (200, 2)
    assert is_same(first, await ask(api, "/v1/jobs/batch", THREE))
    assert await jobs_of(api) == 2
    assert (await ask(api, "/v1/jobs/batch", {"jobs": [{"task": "demo.echo"}]})).status_code == 422


async def test_a_key_that_could_be_that_of_a_batchs_item_is_refused(api: Api) -> None:
    answer = await ask(api, "/v1/jobs/batch", {"jobs": [{"task": "demo.echo", "idempotency_key": "import\x1f0"}]})
    [item] = answer.json()["items"]
    assert "must not contain the control character U+001F" in item["error"]["detail"]


async def test_a_batch_that_was_interrupted_is_completed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response was not stored, but each job of the batch has its own idempotency record."""

    async def fail(idempotency: Idempotency, ask: Ask, answer: str) -> str:
        raise Unavailable("the store went away")

    with monkeypatch.context() as patch:
        patch.setattr(Idempotency, "keep", fail)
        assert (await ask(api, "/v1/jobs/batch", THREE)).status_code == 503
    assert await jobs_of(api) == 2
    again = (await ask(api, "/v1/jobs/batch", THREE)).json()
    listed = {item["id"] for item in (await api.get("/v1/jobs"))["items"]}
    assert {item["id"] for item in again["items"] if "id" in item} == listed
    assert await jobs_of(api) == 2


async def test_a_batch_that_met_a_moment_without_a_store_is_completed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {"jobs": [{"task": "demo.echo", "schedule": "2027-01-01T00:00:00Z"}] * (BATCH + 1)}

    def failing_at_last(verb: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def fail_at_last(store: Any, items: Any) -> Any:
            if len(items) == 1 and (isinstance(items[0], Run) or act_of(items[0]) == "create"):
                raise Unavailable("the store went away")
            return await verb(store, items)

        return fail_at_last

    with monkeypatch.context() as patch:
        for name in ("create", "apply"):  # without an idempotency key, and with one
            patch.setattr(type(api.store), name, failing_at_last(getattr(type(api.store), name)))
        assert (await ask(api, "/v1/jobs/batch", jobs)).status_code == 503
        result = await api.post("/v1/jobs/batch", jobs)
        assert (result["accepted"], result["items"][-1]["error"]["status"]) == (BATCH, 503)
    again = (await ask(api, "/v1/jobs/batch", jobs)).json()
    assert (again["accepted"], len({item["id"] for item in again["items"]})) == (BATCH + 1, BATCH + 1)


async def test_a_batch_that_is_being_worked_on_is_in_flight(api: Api) -> None:
    answers = await asyncio.gather(*(ask(api, "/v1/jobs/batch", THREE) for _ in range(5)))
    by_status = {status: [a for a in answers if a.status_code == status] for status in (200, 409)}
    assert len(by_status[200]) + len(by_status[409]) == 5
    assert by_status[200]
    for answer in by_status[409]:
        assert answer.json()["code"] == InFlight.code
        assert int(answer.headers["retry-after"]) > 0
    assert await jobs_of(api) == 2


async def test_a_job_of_a_batch_may_carry_a_key_of_its_own(api: Api) -> None:
    jobs = [{"task": "demo.echo", "idempotency_key": f"k{number}"} for number in range(3)]
    first = await api.post("/v1/jobs/batch", {"jobs": jobs})
    assert first["accepted"] == 3
    more = await api.post("/v1/jobs/batch", {"jobs": [*reversed(jobs), {"task": "demo.echo"}]})
    assert [item["id"] for item in more["items"][:3]] == [item["id"] for item in reversed(first["items"])]
    changed = await api.post("/v1/jobs/batch", {"jobs": [{**jobs[0], "priority": 1}]})
    assert changed["items"][0]["error"]["code"] == "idempotency_key_reused"
    twice = await api.post("/v1/jobs/batch", {"jobs": [{"task": "demo.echo", "idempotency_key": "new"}] * 2})
    assert twice["items"][0] == twice["items"][1]
    assert await jobs_of(api) == 5


async def test_keys_of_places_are_nobody_elses(api: Api) -> None:
    await ask(api, "/v1/jobs/batch", {"jobs": [{"task": "demo.echo"}]}, "order")
    assert (await ask(api, "/v1/jobs", {"task": "demo.echo"}, "order/0")).status_code == 201
    wrong = await api.post("/v1/jobs/batch", {"jobs": [{"task": "demo.echo", "idempotency_key": ""}]})
    assert wrong["items"][0]["error"]["errors"][0]["pointer"] == "/idempotency_key"
