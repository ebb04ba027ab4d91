"""Lists and events leave out what is too large for them and say so; a response has at most some megabytes."""

import json
from typing import Any

import pytest

from horae.api.dispatch import pages
from horae.api.dispatch.byte_cache import ByteCache
from horae.core.drafts import MAX_INLINE_PARAMS
from horae.queries.listed import MAX_LISTED
from tests.api.harness import Api

SMALL = {"message": "small"}
LARGE = {"message": "x" * MAX_LISTED}
HUGE = {"message": "x" * MAX_INLINE_PARAMS}  # kept as a blob


async def succeed(api: Api, result: str, **fields: Any) -> str:
    """Run a job with a result, and return the id of the run."""
    job = await api.create(**fields)
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run), result)
    return str(job["id"].replace("job", "run"))


# --- what runs show


@pytest.mark.parametrize("params", [SMALL, LARGE, HUGE])
async def test_a_run_shows_its_parameters_and_where_it_belongs(api: Api, params: Any) -> None:
    job = await api.create(
        task="custom",
        allow_unknown_task=True,
        params=params,
        secrets={"token": "s3cr3t-value"},
        name="report",
        key="k",
        labels={"team": "blue"},
        queue="mail",
        priority=7,
    )
    run = await api.get(f"/v1/runs/{job['id'].replace('job', 'run')}")
    shared = ("task", "name", "key", "labels", "queue", "priority", "owner", "created_by", "params")
    assert {name: run[name] for name in shared} == {name: job[name] for name in shared}
    assert run["params"] == params
    assert "omitted" not in run
    assert "s3cr3t" not in json.dumps(run)


async def test_a_run_shows_the_parameters_that_it_was_given(api: Api) -> None:
    job = await api.create(schedule="@yearly", params=SMALL)
    run = await api.post(f"/v1/jobs/{job['id']}/run", {"params": {"message": "other"}}, 202)
    assert run["params"] == {"message": "other"}
    assert (await api.get(f"/v1/runs/{run['id']}"))["params"] == {"message": "other"}
    [listed] = (await api.get("/v1/runs", params={"trigger": "manual"}))["items"]
    assert listed["params"] == {"message": "other"}


@pytest.mark.parametrize("params", [SMALL, LARGE, HUGE])
async def test_a_dead_letter_shows_its_parameters(api: Api, params: Any) -> None:
    await api.create(params=params, max_retries=0)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    [letter] = (await api.get("/v1/dead-letters"))["items"]
    if params is SMALL:
        assert (letter["params"], "omitted" in letter) == (SMALL, False)
    else:
        assert (letter["omitted"], "params" in letter) == (["params"], False)
    assert (await api.get(f"/v1/runs/{letter['id']}"))["params"] == params


# --- what lists leave out


async def test_a_large_result_is_left_out_of_lists_and_named(api: Api) -> None:
    large, small = json.dumps("x" * MAX_LISTED), json.dumps("small")
    run_id = await succeed(api, large)
    api.clock.advance(seconds=1)
    await succeed(api, small)
    job_id = run_id.replace("run", "job")
    for path in ("/v1/runs", f"/v1/jobs/{job_id}/runs"):
        listed = (await api.get(path))["items"][-1]
        assert (listed["id"], listed["omitted"], "result" in listed) == (run_id, ["result"], False)
    newest = (await api.get("/v1/runs"))["items"][0]
    assert (newest["result"], "omitted" in newest) == ("small", False)
    assert (await api.get(f"/v1/runs/{run_id}"))["result"] == json.loads(large)


@pytest.mark.parametrize("params", [LARGE, HUGE])
async def test_a_job_from_a_list_that_left_something_out_cannot_be_sent_back(api: Api, params: Any) -> None:
    job = await api.create(schedule="@daily", key="k", params=params)
    [listed] = (await api.get("/v1/jobs"))["items"]
    assert (listed["omitted"], "params" in listed) == (["params"], False)
    for path in (f"/v1/jobs/{job['id']}", "/v1/jobs/by-key/k"):
        problem = await api.ask("PUT", path, 422, json=listed)
        assert problem["code"] == "incomplete"
        assert "params" in problem["detail"]
        assert [error["pointer"] for error in problem["errors"]] == ["/omitted"]
    whole = await api.get(f"/v1/jobs/{job['id']}")
    assert whole["params"] == params
    for path in (f"/v1/jobs/{job['id']}", "/v1/jobs/by-key/k"):
        assert (await api.ask("PUT", path, 200, json=whole))["params"] == params


async def test_a_job_from_a_list_that_left_nothing_out_can_be_sent_back(api: Api) -> None:
    job = await api.create(schedule="@daily", params=SMALL)
    [listed] = (await api.get("/v1/jobs"))["items"]
    assert await api.ask("PUT", f"/v1/jobs/{job['id']}", 200, json=listed) == job


async def test_a_patch_keeps_large_parameters(api: Api) -> None:
    job = await api.create(schedule="@daily", params=LARGE)
    patched = await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"priority": 3})
    assert (patched["params"], patched["priority"]) == (LARGE, 3)


# --- how large a response is


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs"])
async def test_a_page_ends_where_it_would_have_too_many_bytes(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 20_000)
    monkeypatch.setattr(pages, "CHUNK", 7)
    for number in range(30):
        await api.create(schedule="2099-01-01T00:00:00Z", params={"message": "x" * 200 * number})
    seen: list[str] = []
    cursor: str | None = None
    pages_seen = 0
    while pages_seen == 0 or cursor is not None:
        answer = await api.client.get(path, params={"limit": 1000, **({"cursor": cursor} if cursor else {})})
        assert len(answer.content) < 21_000
        seen += [item["id"] for item in answer.json()["items"]]
        cursor = answer.json()["next_cursor"]
        pages_seen += 1
    assert len(seen) == len(set(seen)) == 30
    assert pages_seen > 4


async def test_an_item_that_is_larger_than_a_page_is_a_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 10)
    for _ in range(2):
        await api.create()
    first = await api.get("/v1/jobs")
    second = await api.get("/v1/jobs", params={"cursor": first["next_cursor"]})
    assert [len(page["items"]) for page in (first, second)] == [1, 1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("limit", [1, 6, 7, 8, 29, 30, 31, 1000])
async def test_pages_have_as_many_items_as_were_asked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(pages, "CHUNK", 7)
    jobs = [(await api.create(schedule="2099-01-01T00:00:00Z"))["id"] for _ in range(30)]
    page = await api.get("/v1/jobs", params={"limit": limit})
    assert [item["id"] for item in page["items"]] == jobs[::-1][:limit]
    assert (page["next_cursor"] is None) == (limit >= 30)


async def test_few_runs_are_in_memory_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    list_runs = api.store.list_runs

    async def counted(which: Any, *, cursor: str | None, limit: int, look: int) -> Any:
        asked.append(limit)
        return await list_runs(which, cursor=cursor, limit=limit, look=look)

    monkeypatch.setattr(api.store, "list_runs", counted)
    await api.get("/v1/runs", params={"limit": 1000})
    assert asked == [pages.CHUNK]


# --- what is kept for others


def test_what_is_encoded_once_for_all_is_bounded_by_bytes() -> None:
    encoded: list[int] = []

    def encode(size: int) -> bytes:
        encoded.append(size)
        return b"x" * size

    cache = ByteCache(encode, most=100)
    with cache.used():
        assert [len(cache(size)) for size in (40, 50, 40, 60, 200, 60)] == [40, 50, 40, 60, 200, 60]
        assert cache.size <= 100
    assert encoded == [40, 50, 60, 200, 60]


def test_what_is_encoded_is_forgotten_when_the_last_one_leaves() -> None:
    cache = ByteCache(bytes, most=100)
    with cache.used():
        with cache.used():
            cache(10)
        assert cache.size == 10
    assert cache.size == 0
