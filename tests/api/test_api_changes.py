"""Changing jobs: patch, pause, resume, cancel, run now."""

import asyncio
from typing import Any

import pytest

from tests.api.harness import Api


async def patch(api: Api, job: Any, body: Any, status: int = 200, **headers: str) -> Any:
    return await api.ask("PATCH", f"/v1/jobs/{job['id']}", status, json=body, headers=headers)


async def slots(api: Api, job: Any, **query: Any) -> list[tuple[str, str, int, str, str | None]]:
    """Return the ledger with times as minute:second."""
    items = (await api.get(f"/v1/jobs/{job['id']}/slots", params={"limit": 1000} | query))["items"]
    return [(item["from"][14:19], item["to"][14:19], item["count"], item["outcome"], item["reason"]) for item in items]


async def finish_due(api: Api) -> int:
    """Run everything that is due, one after another, and return the number of runs."""
    ran = 0
    while runs := await api.hand.claim():
        for run in runs:
            await api.hand.succeed(await api.hand.start(run))
            ran += 1
    return ran


# --- patch


async def test_a_patch_changes_what_it_names(api: Api) -> None:
    job = await api.create(
        schedule="every 1h", labels={"a": "1", "b": "2"}, params={"message": "old"}, timeout_seconds=5
    )
    changed = await patch(
        api,
        job,
        {
            "labels": {"a": None, "c": "3"},
            "params": {"message": "new"},
            "timeout_seconds": None,
            "retry": {"factor": 3},
        },
    )
    assert changed["labels"] == {"b": "2", "c": "3"}
    assert changed["params"] == {"message": "new"}
    assert changed["timeout_seconds"] is None
    assert changed["retry"] == {"initial_seconds": 5, "factor": 3, "max_seconds": 600, "jitter": True}
    assert changed["revision"] == 2
    same = {"schedule", "created_at", "next_run_at", "queue", "id", "max_retries"}
    assert {name: changed[name] for name in same} == {name: job[name] for name in same}
    assert await api.get(f"/v1/jobs/{job['id']}") == changed


async def test_a_patched_schedule_moves_the_next_run(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", overlap="allow")
    api.clock.advance(seconds=3)
    changed = await patch(api, job, {"schedule": "*/20 * * * * *"})
    assert changed["next_run_at"] == "2026-03-01T12:00:20Z"
    runs = (await api.get(f"/v1/jobs/{job['id']}/runs"))["items"]
    assert [run["due_at"][17:19] for run in runs] == ["20", "03", "02", "01"]


async def test_a_patch_of_other_fields_gives_the_runs_to_come_their_new_form(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *", overlap="allow", priority=1)
    api.clock.advance(seconds=12)
    await patch(api, job, {"priority": 9})
    runs = (await api.get(f"/v1/jobs/{job['id']}/runs"))["items"]
    assert [(run["due_at"][17:19], run["priority"]) for run in runs] == [("40", 9), ("30", 9), ("20", 9), ("10", 1)]


async def test_a_schedule_can_be_patched_in_part_or_replaced_by_another_type(api: Api) -> None:
    job = await api.create(schedule="0 9 * * *")
    zoned = await patch(api, job, {"schedule": {"timezone": "Asia/Tokyo"}})
    assert zoned["schedule"] == {"type": "cron", "expression": "0 9 * * *", "timezone": "Asia/Tokyo"}
    other = await patch(api, job, {"schedule": {"type": "every", "seconds": 60}})
    assert other["schedule"]["type"] == "every"


async def test_a_patch_needs_the_revision_that_it_names(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    await patch(api, job, {"name": "b"}, **{"If-Match": '"1"'})
    problem = await patch(api, job, {"name": "c"}, 412, **{"If-Match": '"1"'})
    assert problem["code"] == "revision_changed"
    await patch(api, job, {"name": "c"}, 412, **{"If-Match": 'W/"2"'})
    await patch(api, job, {"name": "c"}, **{"If-Match": '"7", "2"'})
    assert (await patch(api, job, {"name": "d"}, **{"If-Match": "*"}))["revision"] == 4


async def test_patches_at_the_same_time_all_take_effect(api: Api) -> None:
    job = await api.create(schedule="every 1h")
    await asyncio.gather(*(patch(api, job, {"labels": {f"l{number}": "x"}}) for number in range(8)))
    after = await api.get(f"/v1/jobs/{job['id']}")
    assert (len(after["labels"]), after["revision"]) == (8, 9)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"status": "paused"}, "/status"),
        ({"id": "job_1"}, "/id"),
        ({"nme": "x"}, "/nme"),
        ({"nme": None}, "/nme"),
        ({"priority": 101}, "/priority"),
        ({"schedule": "0 0 30 2 *"}, "/schedule"),
        ({"schedule": "now"}, "/schedule"),
        ({"key": "other"}, "/key"),
        ({"task": None}, "/task"),
        ({"params": {"unknown": 1}}, "/params/unknown"),
    ],
)
async def test_a_wrong_patch_is_refused_and_changes_nothing(api: Api, body: Any, pointer: str) -> None:
    job = await api.create(schedule="every 1h")
    problem = await patch(api, job, body, 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert await api.get(f"/v1/jobs/{job['id']}") == job


async def test_a_one_shot_can_be_patched_while_it_waits(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T13:00:00Z")
    changed = await patch(api, job, {"schedule": "2026-03-01T12:00:10Z", "name": "sooner"})
    assert (changed["next_run_at"], changed["name"]) == ("2026-03-01T12:00:10Z", "sooner")
    await patch(api, job, {"schedule": "every 1h"}, 422)
    api.clock.advance(seconds=10)
    [run] = await api.hand.claim()
    await patch(api, job, {"name": "late"}, 409)
    await api.hand.succeed(await api.hand.start(run))
    await patch(api, job, {"name": "later"}, 409)


async def test_large_parameters_survive_a_patch_and_a_new_version_does_not_touch_the_old(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *", params={"message": "x" * 70_000}, overlap="allow")
    api.clock.advance(seconds=10)
    [old] = await api.hand.claim()
    assert (await patch(api, job, {"name": "n"}))["params"] == {"message": "x" * 70_000}
    assert (await patch(api, job, {"params": {"message": "y" * 70_000}}))["params"] == {"message": "y" * 70_000}
    assert old.spec.params_blob is not None
    assert b"xxx" in (await api.store.blobs.get(old.spec.params_blob) or b"")
    small = await patch(api, job, {"params": {"message": "small"}})
    assert small["params"] == {"message": "small"}


async def test_slots_before_a_change_of_schedule_belong_to_the_old_one(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", misfire="skip", overlap="allow")
    api.clock.advance(minutes=2)  # without a planner tick in between
    await patch(api, job, {"schedule": "0 * * * * *"})
    entries = await slots(api, job)
    assert entries[:30] == [(f"00:{n:02d}", f"00:{n:02d}", 1, "pending", None) for n in range(1, 31)]
    assert entries[30] == ("00:31", "01:54", 84, "skipped", "misfire")
    assert [entry[0] for entry in entries[31:]] == [f"01:{n}" for n in range(55, 60)] + ["02:00"]


# --- pause and resume


async def test_a_paused_job_runs_no_slot_and_says_so(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    api.clock.advance(seconds=10)
    paused = await api.post(f"/v1/jobs/{job['id']}/pause")
    assert (paused["status"], paused["next_run_at"], paused["revision"]) == ("paused", None, 2)
    assert (await api.get(f"/v1/jobs/{job['id']}/next"))["items"] == []
    assert await finish_due(api) == 1, "what is already due still runs"
    api.clock.advance(seconds=25)
    assert await finish_due(api) == 0
    assert await slots(api, job) == [
        ("00:10", "00:10", 1, "ran", None),
        ("00:20", "00:30", 2, "skipped", "paused"),
    ]
    assert await api.post(f"/v1/jobs/{job['id']}/pause") == await api.get(f"/v1/jobs/{job['id']}")


@pytest.mark.parametrize(
    ("body", "ran", "skipped"),
    [(None, [], 3), ({}, [], 3), ({"missed": "skip"}, [], 3), ({"missed": "once"}, ["00:30"], 2)],
)
async def test_resume_honours_missed(api: Api, body: Any, ran: list[str], skipped: int) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=35)
    resumed = await api.post(f"/v1/jobs/{job['id']}/resume", body)
    assert (resumed["status"], resumed["next_run_at"]) == ("scheduled", "2026-03-01T12:00:40Z")
    await finish_due(api)
    entries = await slots(api, job)
    assert [entry[0] for entry in entries if entry[3] == "ran"] == ran
    assert sum(entry[2] for entry in entries if entry[4] == "paused") == skipped
    api.clock.advance(seconds=5)
    assert await finish_due(api) == 1, "and it goes on"


async def test_resume_with_all_leaves_the_missed_slots_to_be_caught_up_with(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=35)
    await api.post(f"/v1/jobs/{job['id']}/resume", {"missed": "all"})
    assert await slots(api, job) == [("00:10", "00:30", 3, "pending", None)]


async def test_cancelling_a_job_gives_up_what_it_was_catching_up_with(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=35)
    await api.post(f"/v1/jobs/{job['id']}/resume", {"missed": "all"})
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    assert await slots(api, job) == [("00:10", "00:30", 3, "skipped", "cancelled")]


async def test_pausing_and_resuming_twice_is_the_same_as_once(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    for _ in range(2):
        await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=35)
    for _ in range(2):
        await api.post(f"/v1/jobs/{job['id']}/resume", {"missed": "once"})
    entries = await slots(api, job, end="2026-03-01T12:01:00Z")
    assert entries == [
        ("00:10", "00:20", 2, "skipped", "paused"),
        ("00:30", "00:30", 1, "pending", None),
        ("00:40", "00:40", 1, "pending", None),
        ("00:50", "00:50", 1, "pending", None),
        ("01:00", "01:00", 1, "pending", None),
    ]


async def test_a_pause_stops_runs_that_a_worker_claimed_ahead(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    api.clock.advance(seconds=9.5)
    [run] = await api.hand.claim(ahead=1)
    await api.post(f"/v1/jobs/{job['id']}/pause")
    assert await api.store.stops(api.hand.id) == {run.id: "paused"}


async def test_a_one_shot_can_be_paused_before_its_time(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:00:10Z")
    assert (await api.post(f"/v1/jobs/{job['id']}/pause"))["status"] == "paused"
    api.clock.advance(seconds=11)
    assert await api.hand.claim() == []
    resumed = await api.post(f"/v1/jobs/{job['id']}/resume", {"missed": "once"})
    assert resumed["status"] == "scheduled"
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))


async def test_a_one_shot_whose_time_passed_in_a_pause_is_skipped_unless_asked_otherwise(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:00:10Z")
    await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=11)
    resumed = await api.post(f"/v1/jobs/{job['id']}/resume")
    assert (resumed["status"], resumed["last_run"]["status"]) == ("finished", "skipped")
    assert [entry[2:] for entry in await slots(api, job)] == [(1, "skipped", "paused")]


async def test_a_one_shot_that_is_due_cannot_be_paused(api: Api) -> None:
    job = await api.create()
    await api.post(f"/v1/jobs/{job['id']}/pause", status=409)


# --- cancel


async def test_a_cancelled_job_runs_no_more_and_takes_no_more_acts(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    api.clock.advance(seconds=10)
    cancelled = await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    assert (cancelled["status"], cancelled["next_run_at"]) == ("cancelled", None)
    assert await api.hand.claim(ahead=60) == []
    assert await slots(api, job) == [("00:10", "00:10", 1, "skipped", "cancelled")]
    for act in ("pause", "resume", "run"):
        await api.post(f"/v1/jobs/{job['id']}/{act}", status=409)
    await patch(api, job, {"name": "x"}, 409)
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 409)
    assert (await api.get(f"/v1/jobs/{job['id']}"))["status"] == "cancelled"


async def test_cancelling_a_job_asks_the_worker_to_stop_its_running_run(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *")
    api.clock.advance(seconds=10)
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    deleting = asyncio.create_task(api.ask("DELETE", f"/v1/jobs/{job['id']}", 200))
    await api.hand.asked_to_stop()
    await api.hand.confirm_cancel(running)
    assert (await deleting)["last_run"]["status"] == "cancelled"


async def test_running_runs_are_kept_when_asked_to(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *", overlap="allow")
    api.clock.advance(seconds=10)
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    cancelled = await api.ask("DELETE", f"/v1/jobs/{job['id']}?running=keep", 200)
    assert cancelled["last_run"]["status"] == "running"
    assert await api.store.stops(api.hand.id) == {}
    await api.hand.succeed(running)
    await api.ask("DELETE", f"/v1/jobs/{job['id']}?running=perhaps", 422)


async def test_a_one_shot_that_waits_is_cancelled_for_good(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:00:10Z", key="k")
    cancelled = await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    assert cancelled["status"] == "cancelled"
    api.clock.advance(seconds=11)
    assert await api.hand.claim() == []
    await api.create(key="k")
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 409)


# --- run now


async def test_a_job_runs_now_whatever_its_schedule_says(api: Api) -> None:
    job = await api.create(schedule="2030-01-01T00:00:00Z", params={"message": "a"})
    hourly = await api.create(schedule="every 1h", params={"message": "a"})
    await api.post(f"/v1/jobs/{hourly['id']}/pause")
    for one in (job, hourly):
        run = await api.post(f"/v1/jobs/{one['id']}/run", status=202)
        assert (run["trigger"], run["status"], run["slot"], run["job_id"]) == ("manual", "queued", None, one["id"])
        assert await api.get(f"/v1/runs/{run['id']}") == run
    assert await finish_due(api) == 2
    status = await api.get(f"/v1/jobs/{hourly['id']}/status")
    assert (status["status"], status["run_id"]) == ("succeeded", run["id"])


async def test_run_now_takes_other_parameters(api: Api) -> None:
    job = await api.create(schedule="every 1h", params={"message": "a"})
    await api.post(f"/v1/jobs/{job['id']}/run", {"params": {"message": "b"}}, 202)
    [run] = await api.hand.claim()
    assert run.spec.params == '{"message":"b"}'
    await api.post(f"/v1/jobs/{job['id']}/run", {"params": {"nope": 1}}, 422)
    await api.post(f"/v1/jobs/{job['id']}/run", {"parms": {}}, 422)
    await api.post(f"/v1/jobs/{job['id']}/run", {"params": []}, 422)


async def test_a_finished_one_shot_can_run_again(api: Api) -> None:
    job = await api.create()
    await finish_due(api)
    assert (await api.get(f"/v1/jobs/{job['id']}"))["status"] == "finished"
    api.clock.advance(seconds=1)
    run = await api.post(f"/v1/jobs/{job['id']}/run", status=202)
    assert (await api.get(f"/v1/jobs/{job['id']}/status"))["run_id"] == run["id"]
    assert len((await api.get(f"/v1/jobs/{job['id']}/runs"))["items"]) == 2
    await api.post(f"/v1/jobs/{job['id']}/pause", status=409)


# --- the ledger


async def test_the_ledger_comes_in_pages_and_tells_each_slot_once(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", misfire="skip", overlap="allow")
    api.clock.advance(seconds=20)
    await finish_due(api)
    await api.post(f"/v1/jobs/{job['id']}/pause")
    api.clock.advance(seconds=20)
    await api.post(f"/v1/jobs/{job['id']}/resume")
    whole = (await api.get(f"/v1/jobs/{job['id']}/slots", params={"limit": 1000, "end": "2026-03-01T12:02:00Z"}))[
        "items"
    ]
    assert sum(item["count"] for item in whole) == 120
    paged: list[Any] = []
    query: dict[str, Any] = {"limit": 7, "end": "2026-03-01T12:02:00Z"}
    while True:
        page = await api.get(f"/v1/jobs/{job['id']}/slots", params=query)
        paged += page["items"]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert paged == whole


async def test_a_part_of_the_ledger_can_be_asked_for(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", overlap="allow")
    entries = await slots(api, job, start="2026-03-01T12:00:05Z", end="2026-03-01T13:00:07+01:00")
    assert [entry[0] for entry in entries] == ["00:05", "00:06", "00:07"]
    await api.get(f"/v1/jobs/{job['id']}/slots?start=yesterday", 422)
    await api.get(f"/v1/jobs/{job['id']}/slots?start=2026-03-01T12:00:00", 422)
    await api.get(f"/v1/jobs/{job['id']}/slots?cursor=xyz", 422)
