"""Showing, listing and cancelling runs, and their logs."""

import asyncio
from typing import Any

import pytest

from horae.core.model import Reason
from tests import acts
from tests.api.harness import Api


async def test_a_run_is_shown_through_its_life(api: Api) -> None:
    job = await api.create(max_retries=1, retry={"jitter": False})
    run_id = job["id"].replace("job_", "run_")
    waiting = await api.get(f"/v1/runs/{run_id}")
    assert (waiting["status"], waiting["attempt"], waiting["attempts"]) == ("queued", 0, [])
    [run] = await api.hand.claim()
    assert (await api.get(f"/v1/runs/{run_id}"))["status"] == "queued", "a claim is the engine's own affair"
    api.clock.advance(milliseconds=12)
    running = await api.hand.start(run)
    shown = await api.get(f"/v1/runs/{run_id}")
    assert (shown["status"], shown["attempt"], shown["lateness_ms"]) == ("running", 1, 12)
    assert (shown["worker_id"], shown["started_at"]) == (api.hand.id, "2026-03-01T12:00:00.012000Z")
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["running"]
    await api.hand.fail(running)
    shown = await api.get(f"/v1/runs/{run_id}")
    assert (shown["status"], shown["error"]) == ("retrying", {"type": "DemoError", "message": "no luck"})
    api.clock.advance(seconds=5)
    [again] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(again), '{"answer":42}')
    shown = await api.get(f"/v1/runs/{run_id}")
    assert (shown["status"], shown["result"], shown["error"]) == ("succeeded", {"answer": 42}, None)
    assert (shown["started_at"], shown["lateness_ms"]) == ("2026-03-01T12:00:00.012000Z", 12)
    first, second = shown["attempts"]
    assert (first["number"], first["outcome"], first["error"]["type"]) == (1, "failed", "DemoError")
    assert (second["number"], second["outcome"], second["error"]) == (2, "succeeded", None)
    assert second["started_at"] == shown["finished_at"] == "2026-03-01T12:00:05.012000Z"
    assert shown.keys() >= {"id", "job_id", "trigger", "slot", "due_at", "crashes", "progress"}


async def test_runs_are_listed_by_due_time_latest_first(api: Api) -> None:
    for hour in (3, 1, 2):
        await api.create(schedule=f"2026-03-01T1{hour}:00:00Z")
    runs = (await api.get("/v1/runs"))["items"]
    assert [run["due_at"][11:13] for run in runs] == ["13", "12", "11"]
    assert "attempts" not in runs[0]
    page = await api.get("/v1/runs?limit=2")
    rest = await api.get("/v1/runs", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [run["id"] for run in page["items"] + rest["items"]] == [run["id"] for run in runs]
    assert rest["next_cursor"] is None


async def test_a_list_of_runs_may_begin_with_what_is_due(api: Api) -> None:
    for minute in (58, 59):
        await api.create(schedule=f"2026-03-01T11:{minute}:00Z")
    await api.create()
    await api.create(schedule="2026-03-01T12:00:01Z")
    due = await api.get("/v1/runs?due=true&limit=2")
    assert [run["due_at"][11:16] for run in due["items"]] == ["12:00", "11:59"], "due at this instant is due"
    rest = await api.get("/v1/runs", params={"due": "true", "cursor": due["next_cursor"]})
    assert [run["due_at"][11:16] for run in rest["items"]] == ["11:58"]
    assert len((await api.get("/v1/runs?due=false"))["items"]) == 4
    assert (await api.get("/v1/runs?due=true&end_time=2026-03-01T11:59:00Z"))["items"][0]["due_at"][11:16] == "11:58"
    assert "due must be one of true, false" in (await api.get("/v1/runs?due=1", 422))["detail"]


async def test_runs_are_listed_by_why_they_exist(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T13:00:00Z")
    again = await api.post(f"/v1/jobs/{job['id']}/run", status=202)
    for listed in ("/v1/runs", f"/v1/jobs/{job['id']}/runs"):
        assert [run["id"] for run in (await api.get(f"{listed}?trigger=manual"))["items"]] == [again["id"]]
        assert len((await api.get(f"{listed}?trigger=schedule"))["items"]) == 1
    problem = await api.get("/v1/runs?trigger=chance", status=422)
    assert "trigger must be one of schedule, manual, backfill, requeue" in problem["detail"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "scheduled"}, ["later"]),
        ({"status": "queued"}, ["waits"]),
        ({"status": "running"}, ["runs"]),
        ({"status": "cancelling"}, ["stops"]),
        ({"status": "retrying"}, ["retries"]),
        ({"status": "succeeded"}, ["done"]),
        ({"status": "failed"}, []),
        ({"task": "demo.fail"}, ["retries"]),
        ({"queue": "other"}, ["waits"]),
        ({"start_time": "2026-03-01T12:00:01Z"}, ["later"]),
        ({"end_time": "2026-03-01T12:00:00Z"}, []),
        ({"owner": "nobody"}, []),
    ],
)
async def test_runs_are_found_by(api: Api, query: dict[str, str], expected: list[str]) -> None:
    for name in ("done", "runs", "stops"):
        await api.create(name=name)
    await api.create(task="demo.fail", name="retries")
    for run in await api.hand.claim():
        running = await api.hand.start(run)
        match run.spec.name:
            case "done":
                await api.hand.succeed(running)
            case "retries":
                await api.hand.fail(running)
            case "stops":
                await acts.request_stop(api.store, [run.id], Reason.CANCELLED)
    await api.create(name="waits", queue="other")
    await api.create(name="later", schedule="2026-03-01T13:00:00Z")
    found = (await api.get("/v1/runs", params=query))["items"]
    assert sorted(run["name"] for run in found) == expected


async def test_runs_of_a_job_are_found_by_its_id(api: Api) -> None:
    job = await api.create()
    await api.create()
    for path in (
        f"/v1/runs?job_id={job['id']}",
        f"/v1/jobs/{job['id']}/runs",
        f"/v1/jobs/{job['id']}/runs?status=queued",
    ):
        assert [run["job_id"] for run in (await api.get(path))["items"]] == [job["id"]]
    assert (await api.get(f"/v1/jobs/{job['id']}/runs?status=failed"))["items"] == []
    await api.get("/v1/runs?job_id=nonsense", 404)


# --- cancel


async def cancel(api: Api, job: Any, status: int = 200) -> Any:
    return await api.post(f"/v1/runs/{job['id'].replace('job_', 'run_')}/cancel", status=status)


async def test_a_run_that_waits_is_cancelled_at_once_and_never_starts(api: Api) -> None:
    job = await api.create()
    assert (await cancel(api, job))["status"] == "cancelled"
    assert await api.hand.claim() == []
    assert (await cancel(api, job))["status"] == "cancelled", "again is no error"
    assert (await api.get(f"/v1/jobs/{job['id']}"))["status"] == "cancelled"


async def test_a_run_that_a_worker_holds_is_cancelled_when_the_worker_says_so(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    asking = asyncio.create_task(cancel(api, job))
    await api.hand.asked_to_stop()
    await api.hand.confirm_cancel(running)
    shown = await asking
    assert (shown["status"], shown["attempts"][0]["outcome"]) == ("cancelled", "cancelled")


async def test_a_worker_that_does_not_confirm_leaves_the_run_cancelling(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    assert (await cancel(api, job))["status"] == "cancelling"
    assert (await api.get(f"/v1/jobs/{job['id']}/status"))["status"] == "cancelling"
    await api.hand.succeed(running)
    assert (await api.get(f"/v1/jobs/{job['id']}/status"))["status"] == "succeeded", "a success that came first wins"


async def test_a_run_that_fails_before_it_is_asked_to_stop_is_cancelling_still(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    assert (await cancel(api, job))["status"] == "cancelling"
    await api.hand.fail(running)
    assert (await api.get(f"/v1/jobs/{job['id']}/status"))["status"] == "cancelling"
    found = {status: (await api.get(f"/v1/runs?status={status}"))["items"] for status in ("cancelling", "retrying")}
    assert {status: len(runs) for status, runs in found.items()} == {"cancelling": 1, "retrying": 0}


async def test_a_run_that_ended_cannot_be_cancelled(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))
    problem = await cancel(api, job, 409)
    assert "succeeded" in problem["detail"]


async def test_a_run_that_waits_for_its_next_attempt_is_cancelled_at_once(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    assert (await cancel(api, job))["status"] == "cancelled"


# --- logs


async def test_the_log_of_a_run_is_text(api: Api) -> None:
    job = await api.create()
    run_id = job["id"].removeprefix("job_")
    chunks = [
        (f"logs/{run_id}/{fence:08d}/{part:06d}", f"{fence}.{part}\n".encode()) for fence in (1, 2) for part in (1, 2)
    ]
    await api.store.blobs.put(chunks)
    for path in (f"/v1/runs/run_{run_id}/logs", f"/v1/jobs/{job['id']}/logs"):
        answer = await api.client.get(path)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.text == "1.1\n1.2\n2.1\n2.2\n"


async def test_a_job_that_never_ran_has_no_log(api: Api) -> None:
    job = await api.create(schedule="2030-01-01T00:00:00Z")
    await api.get(f"/v1/jobs/{job['id']}/logs", 404)
