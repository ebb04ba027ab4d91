"""Creating, showing and listing jobs."""

import asyncio
from typing import Any

import pytest

from horae.core.values import replace
from tests import acts
from tests.api.harness import Api


async def test_a_job_needs_a_task_only_and_shows_every_default(api: Api) -> None:
    job = await api.create()
    assert job["id"].startswith("job_")
    assert len(job["id"]) == 36
    run_id = job["id"].replace("job_", "run_")
    due_now = {
        "job_id": job["id"],
        "run_id": run_id,
        "status": "queued",
        "due_at": "2026-03-01T12:00:00Z",
        "started_at": None,
        "finished_at": None,
        "attempt": 0,
        "progress": None,
        "worker_id": None,
        "lateness_ms": None,
        "next_run_at": "2026-03-01T12:00:00Z",
    }
    assert job == {
        "id": job["id"],
        "owner": "local",
        "created_by": "local",
        "status": "scheduled",
        "task": "demo.echo",
        "params": {},
        "name": None,
        "key": None,
        "labels": {},
        "schedule": {"type": "now"},
        "description": "once, at once",
        "queue": "default",
        "priority": 0,
        "ordering_key": None,
        "on_failure": "continue",
        "max_retries": 3,
        "retry": {"initial_seconds": 5, "factor": 2, "max_seconds": 600, "jitter": True},
        "timeout_seconds": None,
        "start_within_seconds": None,
        "overlap": "skip",
        "misfire": "once",
        "catchup_seconds": 3600,
        "next_run_at": "2026-03-01T12:00:00Z",
        "last_run": due_now,
        "created_at": "2026-03-01T12:00:00Z",
        "updated_at": "2026-03-01T12:00:00Z",
        "revision": 1,
    }
    assert await api.get(f"/v1/jobs/{job['id']}") == job
    assert await api.get(f"/v1/jobs/{job['id']}/status") == due_now


async def test_every_field_comes_back_as_it_was_given(api: Api) -> None:
    given = {
        "task": "demo.echo",
        "params": {"message": "grüße 🎉"},
        "name": "a name",
        "key": "a-key",
        "labels": {"team": "billing", "empty": ""},
        "schedule": {"type": "cron", "expression": "0 9 * * mon-fri", "timezone": "Europe/Paris"},
        "queue": "mail.out",
        "priority": -100,
        "ordering_key": "user-42",
        "on_failure": "continue",
        "max_retries": 0,
        "retry": {"initial_seconds": 0.5, "factor": 1.5, "max_seconds": 10, "jitter": False},
        "timeout_seconds": 0.25,
        "start_within_seconds": 60,
        "overlap": "buffer_one",
        "misfire": "all",
        "catchup_seconds": 0,
    }
    job = await api.post("/v1/jobs", given, 201)
    assert {name: job[name] for name in given} == given
    assert (await api.get(f"/v1/jobs/{job['id']}")) == job
    assert job["description"] == "at 09:00 on Monday through Friday (Europe/Paris)"
    assert job["next_run_at"] == "2026-03-02T08:00:00Z"
    assert job["last_run"] is None


async def test_null_is_the_same_as_leaving_a_field_out(api: Api) -> None:
    plain = await api.create()
    names = ("params", "name", "key", "labels", "schedule", "queue", "priority", "retry", "overlap", "misfire")
    nulls = await api.create(**dict.fromkeys((*names, "max_retries", "timeout_seconds", "catchup_seconds")))
    differing = ("id", "last_run")
    assert {k: v for k, v in nulls.items() if k not in differing} == {
        k: v for k, v in plain.items() if k not in differing
    }


async def test_the_answer_says_where_the_job_is_and_which_revision(api: Api) -> None:
    answer = await api.client.post("/v1/jobs", json={"task": "demo.echo"})
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    assert answer.headers["etag"] == '"1"'
    shown = await api.client.get(answer.headers["location"])
    assert shown.headers["etag"] == '"1"'


async def test_a_job_for_later_is_scheduled_and_has_no_run_yet(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T14:00:00+01:00")
    assert job["next_run_at"] == "2026-03-01T13:00:00Z"
    assert job["last_run"] is None
    status = await api.get(f"/v1/jobs/{job['id']}/status")
    assert (status["status"], status["run_id"]) == ("scheduled", None)
    [coming] = (await api.get(f"/v1/jobs/{job['id']}/next"))["items"]
    assert coming == {"at": "2026-03-01T13:00:00Z", "slot": "2026-03-01T13:00:00Z"}


async def test_a_recurring_job_has_the_runs_of_its_first_horizon_at_once(api: Api) -> None:
    job = await api.create(schedule="*/10 * * * * *", overlap="allow")
    runs = (await api.get(f"/v1/jobs/{job['id']}/runs"))["items"]
    assert [run["due_at"] for run in runs] == [f"2026-03-01T12:00:{second}Z" for second in (30, 20, 10)]
    assert {run["status"] for run in runs} == {"scheduled"}
    api.clock.advance(seconds=10)
    assert len(await api.hand.claim()) == 1


async def test_the_key_of_an_unfinished_job_is_taken(api: Api) -> None:
    job = await api.create(key="k", schedule="every 1h")
    problem = await api.post("/v1/jobs", {"task": "demo.echo", "key": "k"}, 409)
    assert problem["code"] == "key_taken"
    assert job["id"] in problem["detail"]
    await api.ask("DELETE", f"/v1/jobs/{job['id']}", 200)
    await api.create(key="k")


async def test_large_parameters_come_back_whole_and_are_left_out_of_lists(api: Api) -> None:
    params = {"message": "x" * 100_000}
    job = await api.create(params=params)
    assert job["params"] == params
    assert (await api.get(f"/v1/jobs/{job['id']}"))["params"] == params
    [listed] = (await api.get("/v1/jobs"))["items"]
    assert (listed["omitted"], "params" in listed) == (["params"], False)
    [run] = await api.hand.claim()
    assert run.spec.params == "{}"
    assert run.spec.params_blob is not None
    stored = await api.store.blobs.get(run.spec.params_blob)
    assert stored is not None
    assert len(stored) > 100_000


async def test_an_unknown_task_is_refused_unless_it_is_asked_for(api: Api) -> None:
    problem = await api.post("/v1/jobs", {"task": "demo.ekko"}, 422)
    assert problem["code"] == "unknown_task"
    assert "demo.echo" in problem["detail"]
    job = await api.create(task="tomorrow.task", allow_unknown_task=True, params={"a": 1}, schedule="every 1h")
    assert job["task"] == "tomorrow.task"
    renamed = await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"name": "still unknown"})
    assert renamed["name"] == "still unknown"


async def test_a_task_that_a_node_registers_later_is_known_at_once(api: Api) -> None:
    await api.post("/v1/jobs", {"task": "new.task"}, 422)
    node = (await api.store.nodes())[0]
    await acts.register(api.store, replace(node, tasks={**node.tasks, "new.task": "{}"}))
    await api.create(task="new.task")


async def test_parameters_that_do_not_fit_the_task_are_refused(api: Api) -> None:
    problem = await api.post("/v1/jobs", {"task": "demo.sleep", "params": {"seconds": "long"}}, 422)
    assert [error["pointer"] for error in problem["errors"]] == ["/params/seconds"]


async def test_creates_at_the_same_time_are_written_together_and_answered_each(api: Api) -> None:
    bodies: list[dict[str, Any]] = [{"task": "demo.echo", "key": f"k{number % 40}"} for number in range(50)]
    answers = await asyncio.gather(*(api.client.post("/v1/jobs", json=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [201] * 40 + [409] * 10
    assert len((await api.get("/v1/jobs", params={"limit": 1000}))["items"]) == 40


# --- batches


async def test_a_batch_answers_for_each_job_in_order(api: Api) -> None:
    jobs = [{"task": "demo.echo"}, {"tusk": 1}, 5, {"task": "demo.echo", "key": "a"}, {"task": "demo.echo", "key": "a"}]
    answer = await api.post("/v1/jobs/batch", {"jobs": jobs})
    assert (answer["accepted"], answer["rejected"]) == (2, 3)
    good, unknown, number, keyed, taken = answer["items"]
    assert good.keys() == keyed.keys() == {"id"}
    assert [error["pointer"] for error in unknown["error"]["errors"]] == ["/tusk", "/task"]
    assert number["error"]["status"] == 422
    assert (taken["error"]["status"], taken["error"]["code"]) == (409, "key_taken")
    assert (await api.get(f"/v1/jobs/{keyed['id']}"))["key"] == "a"


async def test_a_batch_may_come_as_one_job_a_line(api: Api) -> None:
    lines = b'{"task":"demo.echo"}\n\n{nonsense}\r\n{"task":"demo.echo","schedule":"every 1m"}\n'
    answer = await api.post("/v1/jobs/batch", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert [("id" in item, item.get("error", {}).get("status")) for item in answer["items"]] == [
        (True, None),
        (False, 400),
        (True, None),
    ]


async def test_a_batch_of_ten_thousand_is_written_and_one_more_is_too_large(api: Api) -> None:
    job = {"task": "demo.echo", "schedule": "2030-01-01T00:00:00Z"}
    answer = await api.post("/v1/jobs/batch", {"jobs": [job] * 10_000})
    assert (answer["accepted"], len({item["id"] for item in answer["items"]})) == (10_000, 10_000)
    await api.post("/v1/jobs/batch", {"jobs": [job] * 10_001}, 413)


async def test_an_empty_batch_is_no_error(api: Api) -> None:
    assert await api.post("/v1/jobs/batch", {"jobs": []}) == {"items": [], "accepted": 0, "rejected": 0}
    await api.post("/v1/jobs/batch", status=422)


# --- lists


async def test_jobs_are_listed_newest_first_page_by_page(api: Api) -> None:
    made = []
    for number in range(7):
        api.clock.advance(seconds=1)
        made.append((await api.create(schedule="now" if number % 2 else "every 1h"))["id"])
    seen: list[str] = []
    cursor = None
    while True:
        page = await api.get("/v1/jobs", params={"limit": 3} | ({} if cursor is None else {"cursor": cursor}))
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "paused"}, ["hourly"]),
        ({"status": "scheduled"}, ["mail", "once"]),
        ({"status": "finished"}, ["done"]),
        ({"status": "cancelled"}, []),
        ({"last_run_status": "succeeded"}, ["done"]),
        ({"last_run_status": "queued"}, ["once"]),
        ({"task": "demo.sleep"}, ["mail"]),
        ({"name": "once"}, ["once"]),
        ({"key": "key-of-mail"}, ["mail"]),
        ({"queue": "mail"}, ["mail"]),
        ({"label": "team:billing"}, ["hourly"]),
        ({"label": "team"}, ["hourly", "mail"]),
        ({"label": "team:nobody"}, []),
        ({"owner": "local"}, ["done", "hourly", "mail", "once"]),
        ({"owner": "somebody"}, []),
        ({"q": "OF-MA"}, ["mail"]),
    ],
)
async def test_jobs_are_found_by(api: Api, query: dict[str, str], expected: list[str]) -> None:
    await api.create(name="done")
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))
    hourly = await api.create(name="hourly", schedule="every 1h", labels={"team": "billing"})
    await api.post(f"/v1/jobs/{hourly['id']}/pause")
    await api.create(
        task="demo.sleep",
        params={"seconds": 1},
        name="mail",
        key="key-of-mail",
        queue="mail",
        labels={"team": "x"},
        schedule="2030-01-01T00:00:00Z",
    )
    await api.create(name="once")
    found = (await api.get("/v1/jobs", params=query))["items"]
    assert sorted(job["name"] for job in found) == expected


async def test_a_list_shows_the_last_run_of_each_job(api: Api) -> None:
    await api.create(name="recurring", schedule="*/10 * * * * *")
    await api.create(name="later", schedule="2030-01-01T00:00:00Z")
    api.clock.advance(seconds=15)
    jobs = {job["name"]: job for job in (await api.get("/v1/jobs"))["items"]}
    assert jobs["later"]["last_run"] is None
    assert jobs["recurring"]["last_run"]["due_at"] == "2026-03-01T12:00:10Z"
    assert jobs["recurring"]["last_run"]["status"] == "queued"
    assert jobs["recurring"]["next_run_at"] == "2026-03-01T12:00:20Z"


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "limit=x", "cursor=nonsense", "status=odd", "last_run_status=cancelling"),
        *("stauts=paused", "label=", "q=", "status=paused&status=paused", "name=%00"),
    ],
)
async def test_a_wrong_query_is_refused(api: Api, query: str) -> None:
    problem = await api.get(f"/v1/jobs?{query}", 422)
    assert problem["errors"], problem
