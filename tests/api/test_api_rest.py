"""Schedules, tasks, workers, health and metrics."""

from datetime import timedelta

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from tests import acts
from tests.api.harness import Api


async def test_a_schedule_is_previewed_in_words_and_times(api: Api) -> None:
    preview = await api.post("/v1/schedules/preview", {"schedule": "0 9 * * mon-fri", "count": 2})
    assert preview == {
        "description": "at 09:00 on Monday through Friday (UTC)",
        "fires": [{"at": "2026-03-02T09:00:00Z"}, {"at": "2026-03-03T09:00:00Z"}],
        "warnings": [],
    }


async def test_a_preview_notes_what_daylight_saving_does(api: Api) -> None:
    schedule = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin"}
    preview = await api.post(
        "/v1/schedules/preview", {"schedule": schedule, "count": 1, "from": "2026-03-28T12:00:00Z"}
    )
    [fire] = preview["fires"]
    assert fire["at"] == "2026-03-29T01:00:00Z"
    assert "does not exist" in fire["note"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schedule": "0 0 30 2 *"},
        {"schedule": "nonsense"},
        {"schedule": "@daily", "count": 0},
        {"schedule": "@daily", "from": "2026-03-28T12:00:00"},
        {"schedule": "@daily", "form": "x"},
    ],
)
async def test_a_preview_refuses_what_creation_refuses(api: Api, body: object) -> None:
    await api.post("/v1/schedules/preview", body, 422)


async def test_tasks_are_listed_with_their_schemas(api: Api) -> None:
    tasks = {task["name"]: task["schema"] for task in (await api.get("/v1/tasks"))["items"]}
    assert tasks["demo.sleep"]["required"] == ["seconds"]


async def test_workers_are_listed(api: Api) -> None:
    [worker] = (await api.get("/v1/workers"))["items"]
    assert (worker["id"], worker["name"], worker["concurrency"]) == (api.hand.id, "hand", 8)
    assert worker["alive"] is True


async def test_nodes_are_listed_by_their_role_and_the_dead_are_told(api: Api) -> None:
    now = api.clock.now()
    planner = Node(
        id=NodeId(Ids()()), name="another", roles=("api", "planner"), version="test", started_at=now, beat_at=now
    )
    await acts.register(api.store, planner)
    for role, names in (("any", ["another", "hand"]), ("planner", ["another"]), ("worker", ["hand"])):
        assert [node["name"] for node in (await api.get(f"/v1/workers?role={role}"))["items"]] == names
    api.clock.advance(seconds=16)
    assert [node["alive"] for node in (await api.get("/v1/workers?role=any"))["items"]] == [False, False]
    assert "role must be one of api, planner, worker, any" in (await api.get("/v1/workers?role=boss", 422))["detail"]


async def test_health_readiness_and_the_front_page_answer(api: Api) -> None:
    assert await api.get("/healthz") == {"status": "ok"}
    assert await api.get("/readyz") == {"status": "ready"}
    page = await api.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "/v1/jobs" in page.text


async def test_a_node_that_does_not_beat_is_alive_but_not_ready(unready: Services) -> None:
    transport = httpx2.ASGITransport(create_app(unready))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_metrics_tell_of_queues_and_of_runs_that_were_cancelled(api: Api) -> None:
    job = await api.create(queue="mail")
    await api.create(queue="mail")
    await api.create(queue="mail", schedule=(api.clock.now() + timedelta(minutes=5)).isoformat())
    await api.create(queue="mail", schedule=(api.clock.now() + timedelta(minutes=6)).isoformat())
    await api.create(queue="reports", schedule="every 2m")
    await api.post(f"/v1/runs/{job['id'].replace('job_', 'run_')}/cancel")
    api.clock.advance(seconds=3)
    answer = await api.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'horae_queue_depth{queue="mail"} 1.0' in lines
    assert 'horae_oldest_due_age_seconds{queue="mail"} 3.0' in lines
    assert 'horae_due_soon{queue="mail"} 1.0' in lines
    assert 'horae_due_soon{queue="reports"} 1.0' in lines
    assert 'horae_runs_total{queue="mail",status="cancelled",task="demo.echo"} 1.0' in lines
    for name in (
        "horae_lateness_seconds",
        "horae_planner_lag_seconds",
        "horae_clock_offset_seconds",
        "horae_dead_letters",
    ):
        assert f"# HELP {name} " in answer.text


async def test_an_upcoming_time_shows_the_jitter_of_its_job(api: Api) -> None:
    job = await api.create(schedule={"type": "every", "seconds": 3600, "jitter_seconds": 600})
    [coming] = (await api.get(f"/v1/jobs/{job['id']}/next?count=1"))["items"]
    assert coming["slot"] < coming["at"] == job["next_run_at"]
