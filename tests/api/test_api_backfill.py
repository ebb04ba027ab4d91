"""Backfills: running a recurring job for its past slots."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from horae.core.ids import Ids
from horae.core.model import SHARDS
from horae.engine.duties.planner import Planner
from horae.metrics import Metrics
from tests.api.harness import Api

FROM, TO = "2026-02-28T23:00:00Z", "2026-03-01T02:00:00Z"
HOURLY = {"schedule": "0 * * * *", "overlap": "allow"}


async def backfill(api: Api, job: Any, start: Any = FROM, end: Any = TO, status: int = 202, **keywords: Any) -> Any:
    return await api.post(f"/v1/jobs/{job['id']}/backfill", {"start": start, "end": end}, status, **keywords)


async def runs_of(api: Api, job: Any) -> list[tuple[str, str]]:
    runs = (await api.get(f"/v1/jobs/{job['id']}/runs?limit=1000"))["items"]
    return sorted((run["slot"], run["trigger"]) for run in runs)


async def plan(api: Api) -> None:
    """Let a planner turn pending backfills into runs."""
    planner = Planner(api.store, api.clock, Metrics(), horizon=timedelta(), shards=lambda: range(SHARDS), new_id=Ids())
    await planner.tick()


async def test_every_slot_of_the_range_is_run(api: Api) -> None:
    job = await api.create(**HOURLY)
    begun = await backfill(api, job)
    assert begun.pop("id").startswith("backfill_")
    assert begun == {"job_id": job["id"], "start": FROM, "end": TO, "runs": 4}
    await plan(api)
    slots = ["2026-02-28T23:00:00Z", "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z"]
    assert await runs_of(api, job) == [(slot, "backfill") for slot in slots]
    assert len(await api.hand.claim()) == 4
    ledger = (await api.get(f"/v1/jobs/{job['id']}/slots", params={"start": FROM}))["items"]
    assert [entry for entry in ledger if entry["outcome"] != "pending"] == [], "no slot of the schedule is filled"


async def test_a_repeated_backfill_is_begun_once(api: Api) -> None:
    job = await api.create(**HOURLY)
    headers = {"Idempotency-Key": "k"}
    begun = await asyncio.gather(*(backfill(api, job, headers=headers) for _ in range(5)))
    assert len({answer["id"] for answer in begun}) == 1
    await plan(api)
    assert len(await runs_of(api, job)) == 4
    nothing = [
        await backfill(api, job, "2026-03-01T02:01:00Z", "2026-03-01T02:02:00Z", headers={"Idempotency-Key": "n"})
        for _ in "ab"
    ]
    assert nothing[0] == nothing[1]
    assert nothing[0]["runs"] == 0


@pytest.mark.parametrize(
    ("start", "end", "pointer"),
    [
        (TO, FROM, "/start"),
        (FROM, "2026-03-01T12:00:01Z", "/end"),
        ("2026-02-28", TO, "/start"),
        (FROM, "2026-03-01T02:00:00", "/end"),
        (FROM, 7, "/end"),
        (None, TO, "/start"),
        ("1960-01-01T00:00:00Z", TO, "/start"),
    ],
)
async def test_a_wrong_range_is_refused(api: Api, start: Any, end: Any, pointer: str) -> None:
    job = await api.create(**HOURLY)
    problem = await backfill(api, job, start, end, 422)
    assert (problem["errors"][0]["pointer"], problem["code"]) == (pointer, "invalid")
    await plan(api)
    assert await runs_of(api, job) == []


async def test_too_large_a_range_is_to_be_split(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", overlap="allow")
    problem = await backfill(api, job, "2026-02-28T08:00:00Z", "2026-03-01T12:00:00Z", 422)
    assert "split" in problem["detail"]
    assert (await backfill(api, job, "2026-02-28T09:00:00Z", "2026-03-01T12:00:00Z"))["runs"] == 97_201


async def test_only_recurring_jobs_have_slots(api: Api) -> None:
    await backfill(api, await api.create(), status=409)
    await backfill(api, {"id": "job_" + "0" * 32}, status=404)
    job = await api.create(**HOURLY)
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    await backfill(api, job, status=409)
    await api.post(f"/v1/jobs/{job['id']}/backfill", {"start": FROM, "end": TO, "step": 1}, 422)


async def test_a_paused_job_can_be_filled(api: Api) -> None:
    job = await api.create(**HOURLY)
    await api.post(f"/v1/jobs/{job['id']}/pause")
    await backfill(api, job)
    await plan(api)
    assert len(await runs_of(api, job)) == 4


@pytest.mark.parametrize("act", ["cancel", "move"])
async def test_a_backfill_ends_with_its_schedule(api: Api, act: str) -> None:
    job = await api.create(**HOURLY)
    await backfill(api, job)
    if act == "cancel":
        await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    else:
        await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"schedule": "30 * * * *"})
    await plan(api)
    assert await runs_of(api, job) == []
    ledger = (await api.get(f"/v1/jobs/{job['id']}/slots", params={"start": FROM}))["items"]
    assert ledger == [], "what users fill was never owed"
