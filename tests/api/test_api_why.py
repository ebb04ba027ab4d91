"""Why a run has not started."""

from typing import Any

from tests.api.harness import Api


async def why(api: Api, job: Any) -> Any:
    return await api.get(f"/v1/runs/{job['id'].replace('job_', 'run_')}/why")


async def reason(api: Api, job: Any) -> str:
    found = await why(api, job)
    assert found.keys() == {"reason", "detail", "expected_at"}
    assert len(found["detail"]) > 10
    return str(found["reason"])


async def test_the_life_of_a_run_is_told(api: Api) -> None:
    job = await api.create(
        schedule="2026-03-01T12:01:00Z", max_retries=1, retry={"initial_seconds": 10, "jitter": False}
    )
    assert await why(api, job) == {
        "reason": "not_due",
        "detail": "it is due at 2026-03-01T12:01:00Z",
        "expected_at": "2026-03-01T12:01:00Z",
    }
    api.clock.advance(minutes=1)
    await api.hand.join()
    assert await reason(api, job) == "starting"
    [run] = await api.hand.claim()
    assert await reason(api, job) == "starting"
    started = await api.hand.start(run)
    assert await reason(api, job) == "started"
    await api.hand.fail(started)
    delayed = await why(api, job)
    assert (delayed["reason"], delayed["expected_at"]) == ("retry_delay", "2026-03-01T12:01:10Z")
    api.clock.advance(seconds=10)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    assert await reason(api, job) == "ended"


async def test_a_paused_job_is_told(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:01:00Z")
    await api.post(f"/v1/jobs/{job['id']}/pause")
    assert await reason(api, job) == "job_paused"


async def test_the_want_of_workers_is_told(api: Api) -> None:
    assert await reason(api, await api.create(queue="mail")) == "no_worker_for_queue"
    assert await reason(api, await api.create("nobody.knows", allow_unknown_task=True)) == "no_worker_for_task"
    api.clock.advance(seconds=60)
    assert await reason(api, await api.create()) == "no_worker"


async def test_the_run_ahead_is_named(api: Api) -> None:
    first = await api.create(ordering_key="o")
    api.clock.advance(seconds=1)
    second = await api.create(ordering_key="o")
    [run] = await api.hand.claim()
    await api.hand.start(run)
    result = await why(api, second)
    assert result["reason"] == "waiting_for_run"
    assert first["id"].replace("job_", "run_") in result["detail"]


async def test_a_full_queue_is_told(api: Api) -> None:
    await api.ask("PATCH", "/v1/queues/default", 200, json={"concurrency": 1})
    await api.create()
    second = await api.create()
    [run] = await api.hand.claim()
    await api.hand.start(run)
    assert await reason(api, second) == "queue_full"


async def test_a_cancel_under_way_is_told(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:00:01Z")
    await api.hand.claim(ahead=5)
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    assert await reason(api, job) == "cancelling"


async def test_what_is_not_there_has_no_why(api: Api) -> None:
    await api.get("/v1/runs/run_" + "0" * 32 + "/why", 404)
    await api.get("/v1/runs/7/why", 404)
    beyond = "ffffffffffff7fff8fffffffffffffff"  # its timestamp is beyond the year 9999
    await api.get(f"/v1/runs/run_{beyond}/why", 404)
    await api.get(f"/v1/jobs/job_{beyond}", 404)
