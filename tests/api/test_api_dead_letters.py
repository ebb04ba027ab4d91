"""Dead letters: listing, grouping, requeueing and discarding."""

import asyncio
from typing import Any

import pytest

from tests.api.harness import Api

UNKNOWN = "run_019f0000000070008000000000000000"
BEYOND = "run_ffffffffffff7fff8fffffffffffffff"  # its timestamp is beyond the year 9999


async def fail(api: Api, message: str = "no luck", **fields: Any) -> Any:
    """Create a job whose run fails after all retries, and return the run."""
    job = await api.create(max_retries=0, **fields)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run), message)
    return await api.get(f"/v1/runs/{job['id'].replace('job', 'run')}")


async def letters(api: Api, **query: Any) -> list[str]:
    return [item["id"] for item in (await api.get("/v1/dead-letters", params=query))["items"]]


async def requeue(api: Api, status: int = 200, **body: Any) -> Any:
    return await api.post("/v1/dead-letters/requeue", body, status)


async def discard(api: Api, status: int = 200, **body: Any) -> Any:
    return await api.post("/v1/dead-letters/discard", body, status)


def tally(matched: int, done: int, remaining: int) -> dict[str, int]:
    return {"matched": matched, "done": done, "remaining": remaining}


# --- looking


async def test_failed_runs_are_listed_until_they_are_resolved(api: Api) -> None:
    first = await fail(api)
    api.clock.advance(seconds=1)
    second = await fail(api, queue="mail")
    await api.create()
    assert await letters(api) == [second["id"], first["id"]]
    assert await letters(api, queue="mail") == [second["id"]]
    assert await letters(api, job_id=first["job_id"]) == [first["id"]]
    assert await letters(api, task="demo.sleep") == []
    assert await letters(api, error="DemoError") == [second["id"], first["id"]]
    assert await letters(api, error="Other") == []
    assert await letters(api, start_time="2026-03-01T12:00:01Z") == [second["id"]]
    assert await letters(api, end_time="2026-03-01T12:00:01Z") == [first["id"]]
    page = await api.get("/v1/dead-letters?limit=1")
    assert [item["id"] for item in page["items"]] == [second["id"]]
    assert await letters(api, limit=1, cursor=page["next_cursor"]) == [first["id"]]
    assert (first["resolution"], first["requeue_of"]) == (None, None)


async def test_letters_are_grouped_by_what_they_failed_of(api: Api) -> None:
    for number in range(3):
        await fail(api, "alike", priority=number)
        api.clock.advance(seconds=1)
    other = await fail(api, "otherwise", task="demo.sleep", params={"seconds": 1})
    found = (await api.get("/v1/dead-letters?group=error"))["items"]
    example = found[0].pop("example_run_id")
    assert found[0] == {
        "error": {"type": "DemoError", "message": "alike"},
        "task": "demo.echo",
        "count": 3,
        "oldest_at": "2026-03-01T12:00:00Z",
        "newest_at": "2026-03-01T12:00:02Z",
    }
    assert (await api.get(f"/v1/runs/{example}"))["due_at"] == "2026-03-01T12:00:02Z"
    assert (found[1]["task"], found[1]["count"], found[1]["example_run_id"]) == ("demo.sleep", 1, other["id"])
    assert (await api.get("/v1/dead-letters?group=error&task=nothing"))["items"] == []


@pytest.mark.parametrize(
    "query", ["group=task", "status=failed", "error=", "job_id=7", "start_time=yesterday", "limit=0"]
)
async def test_a_wrong_question_is_refused(api: Api, query: str) -> None:
    await api.get(f"/v1/dead-letters?{query}", 404 if "job_id" in query else 422)


# --- trying again


async def test_a_letter_is_tried_again_as_a_new_run(api: Api) -> None:
    letter = await fail(api, key="mine")
    answer = await requeue(api, ids=[letter["id"]])
    assert answer == tally(1, 1, 0)
    old = await api.get(f"/v1/runs/{letter['id']}")
    new = await api.get(f"/v1/runs/{old['resolution']}")
    assert (new["status"], new["trigger"], new["requeue_of"], new["job_id"]) == (
        "queued",
        "requeue",
        letter["id"],
        letter["job_id"],
    )
    assert (old["status"], await letters(api)) == ("failed", [])
    assert (await api.get(f"/v1/jobs/{letter['job_id']}/status"))["run_id"] == new["id"]
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))
    assert await requeue(api, ids=[letter["id"]]) == tally(0, 0, 0), "it is none any more"


async def test_what_is_no_letter_is_not_matched(api: Api) -> None:
    letter = await fail(api)
    waiting = await api.create()
    ids = [letter["id"], letter["id"], UNKNOWN, BEYOND, waiting["id"].replace("job", "run"), "nonsense", "run_1", ""]
    assert await requeue(api, ids=ids) == tally(1, 1, 0)
    assert len((await api.get("/v1/runs"))["items"]) == 3


async def test_letters_are_edited_as_they_are_tried_again(api: Api) -> None:
    letter = await fail(api, params={"message": "old"})
    assert (await requeue(api, ids=[letter["id"]], params={"message": "new"}))["done"] == 1
    [run] = await api.hand.claim()
    assert run.spec.params == '{"message":"new"}'
    await api.hand.fail(await api.hand.start(run))
    assert (await requeue(api, filter={}, params={"message": None})) == tally(1, 1, 0)
    [run] = await api.hand.claim()
    assert run.spec.params == "{}"


async def test_large_parameters_are_edited_too(api: Api) -> None:
    letter = await fail(api, task="demo.sleep", params={"seconds": 1})
    large = "x" * 100_000
    echo = await fail(api, params={"message": large})
    assert (await requeue(api, filter={"task": "demo.echo"}, params={"message": large + "y"}))["done"] == 1
    [run] = await api.hand.claim()
    assert run.spec.params_blob is not None
    assert await api.store.blobs.get(run.spec.params_blob) == f'{{"message":"{large}y"}}'.encode()
    assert await letters(api) == [letter["id"]]
    assert (await api.get(f"/v1/runs/{echo['id']}"))["resolution"] == f"run_{run.id}"


async def test_parameters_that_do_not_fit_leave_the_letter(api: Api) -> None:
    letter = await fail(api)
    problem = await requeue(api, 422, ids=[letter["id"]], params={"message": 7})
    assert problem["errors"][0]["pointer"] == "/params/message"
    assert await letters(api) == [letter["id"]]
    sleep = await fail(api, task="demo.sleep", params={"seconds": 1})
    mixed = await requeue(api, filter={}, params={"seconds": 2})
    assert mixed == tally(2, 1, 1)
    assert (await api.get(f"/v1/runs/{sleep['id']}"))["resolution"] is not None
    assert await requeue(api, ids=[letter["id"], sleep["id"]], params={"message": "x"}) == tally(1, 1, 0)


async def test_letters_are_chosen_by_a_filter(api: Api) -> None:
    for number in range(4):
        await fail(api, queue="mail" if number % 2 else "default", message=f"m{number}")
        api.clock.advance(seconds=1)
    assert await requeue(api, filter={"queue": "mail", "end_time": "2026-03-01T12:00:02Z"}) == tally(1, 1, 0)
    assert await requeue(api, filter={"queue": "mail", "error": "Other"}) == tally(0, 0, 0)
    assert await discard(api, filter={"task": "demo.echo", "start_time": "2026-03-01T12:00:02Z"}) == tally(2, 2, 0)
    assert len(await letters(api)) == 1
    job = (await api.get("/v1/dead-letters"))["items"][0]["job_id"]
    assert await requeue(api, filter={"job_id": job, "owner": "local"}) == tally(1, 1, 0)


async def test_a_repeated_requeue_is_answered_as_before(api: Api) -> None:
    await fail(api)
    headers = {"Idempotency-Key": "k"}
    first = await api.client.post("/v1/dead-letters/requeue", json={"filter": {}}, headers=headers)
    again = await api.client.post("/v1/dead-letters/requeue", json={"filter": {}}, headers=headers)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    other = await api.client.post("/v1/dead-letters/requeue", json={"filter": {"task": "x"}}, headers=headers)
    assert other.status_code == 422


async def test_letters_that_many_try_again_at_once_are_run_once(api: Api) -> None:
    ids = [(await fail(api))["id"] for _ in range(6)]
    answers = await asyncio.gather(*(requeue(api, filter={}) for _ in range(3)), requeue(api, ids=ids))
    assert sum(answer["done"] for answer in answers) == 6
    assert len(await api.hand.claim()) == 6


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, None),
        ({"ids": ["a"], "filter": {}}, None),
        ({"ids": []}, "/ids"),
        ({"ids": ["a"] * 10_001}, "/ids"),
        ({"ids": "run_1"}, "/ids"),
        ({"ids": [1]}, "/ids/0"),
        ({"filter": {"tusk": "x"}}, "/filter/tusk"),
        ({"filter": {"status": "failed"}}, "/filter/status"),
        ({"filter": {"start_time": "now"}}, "/filter/start_time"),
        ({"filter": {"job_id": "7"}}, "/filter/job_id"),
        ({"filter": {"queue": "no such name"}}, "/filter/queue"),
        ({"filter": []}, "/filter"),
    ],
)
@pytest.mark.parametrize("act", ["requeue", "discard"])
async def test_a_wrong_choice_is_refused(api: Api, act: str, body: Any, pointer: str | None) -> None:
    letter = await fail(api)
    problem = await api.post(f"/v1/dead-letters/{act}", body, 422)
    assert [error["pointer"] for error in problem["errors"]][:1] == ([] if pointer is None else [pointer])
    assert await letters(api) == [letter["id"]]


async def test_parameters_are_an_object(api: Api) -> None:
    letter = await fail(api)
    assert (await requeue(api, 422, ids=[letter["id"]], params=[]))["errors"][0]["pointer"] == "/params"
    assert (await discard(api, 422, ids=[letter["id"]], params={}))["errors"][0]["pointer"] == "/params"


# --- giving up


async def test_a_discarded_letter_is_over(api: Api) -> None:
    letter = await fail(api)
    assert await discard(api, ids=[letter["id"], UNKNOWN]) == tally(1, 1, 0)
    assert (await api.get(f"/v1/runs/{letter['id']}"))["resolution"] == "discarded"
    assert await letters(api) == []
    assert await discard(api, filter={}) == tally(0, 0, 0)
    problem = await api.post(f"/v1/runs/{letter['id']}/retry", status=409)
    assert "discarded" in problem["detail"]


# --- one run


async def test_a_failed_run_is_tried_again(api: Api) -> None:
    letter = await fail(api, params={"message": "a"})
    answer = await api.client.post(f"/v1/runs/{letter['id']}/retry", json={"params": {"message": "b"}})
    new = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/runs/{new['id']}")
    assert (new["trigger"], new["requeue_of"], new["status"]) == ("requeue", letter["id"], "queued")
    assert {**await api.get(f"/v1/runs/{new['id']}")} == new
    problem = await api.post(f"/v1/runs/{letter['id']}/retry", status=409)
    assert new["id"] in problem["detail"]
    await api.post(f"/v1/runs/{new['id']}/retry", status=409)
    await api.post(f"/v1/runs/{UNKNOWN}/retry", status=404)
    await api.post(f"/v1/runs/{letter['id']}/retry", {"parms": {}}, 422)


async def test_a_repeated_retry_is_one_run(api: Api) -> None:
    letter = await fail(api)
    headers = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(
        *(api.client.post(f"/v1/runs/{letter['id']}/retry", headers=headers) for _ in range(6))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert len(await api.hand.claim()) == 1


async def test_a_blocked_key_goes_on_behind_the_run_that_replaces_its_letter(api: Api) -> None:
    letter = await fail(api, ordering_key="account", on_failure="block")
    api.clock.advance(seconds=1)
    later = await api.create(ordering_key="account", on_failure="block")
    assert await api.hand.claim() == []
    why = await api.get(f"/v1/runs/{later['id'].replace('job', 'run')}/why")
    assert (why["reason"], letter["id"] in why["detail"]) == ("blocked_by_failure", True)
    await requeue(api, ids=[letter["id"]])
    [again] = await api.hand.claim()
    assert again.requeue_of == letter["id"].removeprefix("run_")
    await api.hand.succeed(await api.hand.start(again))
    [run] = await api.hand.claim()
    assert run.job_id == later["id"].removeprefix("job_")
