"""Acts on many jobs or runs: by ids or by a filter, counted first, in small chunks, with a cursor to go on."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from msgspec import structs

from horae.api.schemas import bulk_requests, filters
from horae.core.changes import Change, Refusal
from horae.core.decisions.results import Settled
from horae.core.errors import Unavailable
from horae.core.model import JobId
from horae.jobs.bulk import acts
from horae.jobs.idempotency import Idempotency
from horae.ports.store import Store
from tests.api.harness import Api
from tests.api.test_api_dead_letters import fail

LATER = "2099-01-01T00:00:00Z"


async def on_jobs(api: Api, action: str, status: int = 200, **body: Any) -> Any:
    return await api.post("/v1/jobs/bulk", {"action": action, **body}, status)


async def on_runs(api: Api, action: str, status: int = 200, **body: Any) -> Any:
    return await api.post("/v1/runs/bulk", {"action": action, **body}, status)


def tally(matched: int, done: int, remaining: int = 0, cursor: str | None = None) -> dict[str, Any]:
    return {"matched": matched, "done": done, "remaining": remaining, "cursor": cursor}


async def statuses(api: Api, **query: Any) -> list[str]:
    return [job["status"] for job in (await api.get("/v1/jobs", params=query))["items"]]


async def a_mix(api: Api, queue: str = "mail") -> list[str]:
    """Two one-shots that wait and a recurring job, in one queue; their ids, newest first."""
    made = [await api.create(queue=queue, schedule=LATER) for _ in range(2)]
    made.append(await api.create(queue=queue, schedule="every 1h"))
    return [job["id"] for job in reversed(made)]


# --- jobs


async def test_jobs_are_paused_and_resumed_by_a_filter(api: Api) -> None:
    await a_mix(api)
    other = await api.create(schedule=LATER)
    assert await on_jobs(api, "pause", filter={"queue": "mail"}) == tally(3, 3)
    assert await statuses(api, queue="mail") == ["paused"] * 3
    assert (await api.get(f"/v1/jobs/{other['id']}"))["status"] == "scheduled"
    assert await on_jobs(api, "pause", filter={"queue": "mail"}) == tally(0, 0), "none is left to pause"
    assert await on_jobs(api, "resume", filter={"queue": "mail"}) == tally(3, 3)
    assert await statuses(api, queue="mail") == ["scheduled"] * 3


async def test_what_was_missed_in_a_pause_of_many_follows_the_choice(api: Api) -> None:
    await api.create(queue="mail", schedule="every 1m")
    await api.create(queue="mail", schedule="2026-03-01T12:05:00Z")
    await on_jobs(api, "pause", filter={})
    api.clock.advance(minutes=10)
    assert await on_jobs(api, "resume", filter={}, missed="once") == tally(2, 2)
    assert len(await api.hand.claim()) == 2
    problem = await on_jobs(api, "pause", 422, filter={}, missed="once")
    assert problem["errors"][0]["pointer"] == "/missed"


async def test_a_one_shot_that_came_due_in_its_pause_is_skipped_with_many(api: Api) -> None:
    job = await api.create(schedule="2026-03-01T12:05:00Z")
    await on_jobs(api, "pause", ids=[job["id"]])
    api.clock.advance(minutes=10)
    assert await on_jobs(api, "resume", filter={}) == tally(1, 1)
    assert (await api.get(f"/v1/jobs/{job['id']}"))["last_run"]["status"] == "skipped"


async def test_jobs_are_cancelled_with_all_their_runs(api: Api) -> None:
    once, again, recurring = await a_mix(api)
    await api.post(f"/v1/jobs/{once}/run", status=202)
    await api.post(f"/v1/jobs/{again}/run", status=202)
    await api.post(f"/v1/jobs/{recurring}/pause")
    assert await on_jobs(api, "cancel", filter={"queue": "mail"}) == tally(3, 3)
    assert await statuses(api, queue="mail") == ["cancelled"] * 3
    runs = (await api.get("/v1/runs", params={"queue": "mail"}))["items"]
    assert {run["status"] for run in runs} == {"cancelled"}
    api.clock.advance(hours=2)
    assert await api.hand.claim() == []


async def test_a_cancel_of_many_tells_workers_and_does_not_wait_for_them(api: Api) -> None:
    job = await api.create()
    [run] = await api.hand.claim()
    running = await api.hand.start(run)
    async with asyncio.timeout(1):
        assert await on_jobs(api, "cancel", ids=[job["id"]]) == tally(1, 1)
    assert (await api.get(f"/v1/runs/run_{run.id}"))["status"] == "cancelling"
    assert (await api.hand.asked_to_stop()).keys() == {run.id}
    await api.hand.confirm_cancel(running)
    assert (await api.get(f"/v1/jobs/{job['id']}"))["status"] == "cancelled"


async def test_jobs_are_run_now_by_a_filter(api: Api) -> None:
    await a_mix(api)
    cancelled = await api.create(queue="mail", schedule=LATER)
    await api.ask("DELETE", f"/v1/jobs/{cancelled['id']}", 200)
    assert await on_jobs(api, "run", filter={"queue": "mail"}) == tally(3, 3)
    runs = await api.hand.claim()
    assert [(run.trigger, run.created_by) for run in runs] == [("manual", "local")] * 3


async def test_what_an_act_cannot_change_is_left_and_counted(api: Api) -> None:
    due = await api.create()
    later = await api.create(schedule=LATER)
    assert await on_jobs(api, "pause", ids=[due["id"], later["id"]]) == tally(2, 1, 1)
    assert await statuses(api) == ["paused", "scheduled"]
    [run] = await api.hand.claim()
    await api.hand.succeed(await api.hand.start(run))
    assert await on_jobs(api, "cancel", filter={"status": "finished"}) == tally(1, 0, 1)
    assert await on_jobs(api, "run", filter={"status": "finished"}) == tally(1, 1)


async def test_what_is_as_wanted_already_is_done(api: Api) -> None:
    ids = await a_mix(api)
    await on_jobs(api, "pause", ids=ids)
    assert await on_jobs(api, "pause", ids=ids) == tally(3, 3)
    await on_jobs(api, "cancel", ids=ids)
    assert await on_jobs(api, "cancel", ids=ids) == tally(3, 0, 3), "as a single cancel, which would be a 409"


# --- runs


async def test_runs_are_cancelled_by_a_filter(api: Api) -> None:
    for number in range(4):
        await api.create(queue="mail" if number % 2 else "default", schedule=LATER)
    [first, *_] = (await api.get("/v1/runs", params={"queue": "mail"}))["items"]
    await api.post(f"/v1/runs/{first['id']}/cancel")
    assert await on_runs(api, "cancel", filter={"queue": "mail"}) == tally(1, 1), "what has ended is not selected"
    assert len((await api.get("/v1/runs?status=scheduled"))["items"]) == 2
    assert await on_runs(api, "cancel", filter={"status": "cancelled"}) == tally(2, 2)


async def test_runs_in_progress_are_told_to_stop(api: Api) -> None:
    for _ in range(2):
        await api.create()
    running, claimed = await api.hand.claim()
    running = await api.hand.start(running)
    waiting = await api.create()
    assert await on_runs(api, "cancel", filter={}) == tally(3, 3)
    assert (await api.hand.asked_to_stop()).keys() == {running.id, claimed.id}
    assert (await api.get(f"/v1/jobs/{waiting['id']}"))["status"] == "cancelled"
    assert await on_runs(api, "cancel", filter={}) == tally(0, 0), "those that are cancelling are not selected again"
    assert await on_runs(api, "cancel", filter={"status": "cancelling"}) == tally(2, 2)


async def test_failed_runs_are_retried_by_a_filter(api: Api) -> None:
    letters = [await fail(api, queue="mail" if number else "default") for number in range(3)]
    assert await on_runs(api, "retry", filter={"queue": "mail", "status": "failed"}) == tally(2, 2)
    assert [letter["id"] for letter in (await api.get("/v1/dead-letters"))["items"]] == [letters[0]["id"]]
    assert await on_runs(api, "retry", ids=[letter["id"] for letter in letters]) == tally(1, 1)
    assert {run.trigger for run in await api.hand.claim()} == {"requeue"}


async def test_runs_are_selected_by_every_condition_of_their_list(api: Api) -> None:
    job = await api.create(schedule=LATER)
    await api.post(f"/v1/jobs/{job['id']}/run", status=202)
    which = {"job_id": job["id"], "trigger": "manual", "task": "demo.echo", "end_time": LATER}
    assert await on_runs(api, "cancel", filter=which) == tally(1, 1)
    assert [run["status"] for run in (await api.get("/v1/runs"))["items"]] == ["scheduled", "cancelled"]


# --- what all of them have


@pytest.mark.parametrize(
    ("body", "listed"),
    [(bulk_requests.JobBulkBody, filters.JOB_FILTERS), (bulk_requests.RunBulkBody, filters.RUN_FILTERS)],
)
def test_a_filter_has_the_fields_of_the_list(body: Any, listed: Sequence[Any]) -> None:
    [kind] = [field.type for field in structs.fields(body) if field.name == "filter"]
    [fitting] = [one for one in get_args(kind) if one is not type(None)]
    assert [field.name for field in structs.fields(fitting)] == [param.name for param in listed]


async def test_a_dry_run_counts_and_changes_nothing(api: Api) -> None:
    ids = await a_mix(api)
    await fail(api)
    before = [await api.get("/v1/jobs"), await api.get("/v1/runs")]
    for action in ("pause", "cancel", "run"):
        assert await on_jobs(api, action, filter={"queue": "mail"}, dry_run=True) == tally(3, 0, 3)
    assert await on_jobs(api, "resume", ids=ids, dry_run=True) == tally(3, 0, 3)
    assert await on_runs(api, "cancel", filter={}, dry_run=True) == tally(2, 0, 2)
    assert await on_runs(api, "retry", filter={}, dry_run=True) == tally(1, 0, 1)
    assert [await api.get("/v1/jobs"), await api.get("/v1/runs")] == before


async def test_what_is_too_much_for_one_call_goes_on_at_its_cursor(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "MAX_ITEMS", 4)
    monkeypatch.setattr(acts, "CHUNK", 3)
    ids = [*await a_mix(api), *await a_mix(api), *await a_mix(api)]
    await on_jobs(api, "pause", ids=[ids[1], ids[7]])
    counted = await on_jobs(api, "cancel", filter={}, dry_run=True)
    assert (counted["matched"], counted["done"], counted["remaining"]) == (4, 0, 8)
    first = await on_jobs(api, "cancel", filter={})
    assert (first["matched"], first["done"], first["remaining"]) == (4, 4, 4)
    second = await on_jobs(api, "cancel", filter={}, cursor=first["cursor"])
    assert (second["matched"], second["done"], second["remaining"]) == (4, 4, 1)
    assert await on_jobs(api, "cancel", filter={}, cursor=second["cursor"]) == tally(1, 1)
    assert await statuses(api) == ["cancelled"] * 9


@pytest.mark.parametrize("by", ["ids", "filter"])
async def test_a_call_ends_in_time_and_goes_on_at_its_cursor(
    api: Api, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(acts, "MAX_SECONDS", -1.0)
    monkeypatch.setattr(acts, "CHUNK", 2)
    ids = [*await a_mix(api), *await a_mix(api)]
    which: Any = {"filter": {}} if by == "filter" else {"ids": ids}
    cursor, done = None, 0
    for _ in range(10):
        answer = await on_jobs(api, "pause", **which, **({} if cursor is None else {"cursor": cursor}))
        cursor, done = answer["cursor"], done + answer["done"]
        assert answer["matched"] <= 2
        if cursor is None:
            break
    assert (done, cursor) == (6, None)
    assert await statuses(api) == ["paused"] * 6


class Watched:
    """Counts what each write of a store is given."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        apply, settle = store.apply, store.settle

        async def counted_apply(changes: Sequence[Change]) -> list[Refusal | None]:
            self.sizes.append(len(changes))
            return await apply(changes)

        async def counted_settle(results: Sequence[Settled]) -> list[bool]:
            self.sizes.append(len(results))
            return await settle(results)

        monkeypatch.setattr(store, "apply", counted_apply)
        monkeypatch.setattr(store, "settle", counted_settle)


@pytest.mark.parametrize("action", ["pause", "cancel", "run"])
async def test_one_shots_are_written_in_batches_that_are_small(
    api: Api, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    jobs = [{"task": "demo.echo", "schedule": LATER}] * (3 * acts.CHUNK)
    assert (await api.post("/v1/jobs/batch", {"jobs": jobs}))["accepted"] == 3 * acts.CHUNK
    watched = Watched(api.store, monkeypatch)
    assert await on_jobs(api, action, filter={}) == tally(3 * acts.CHUNK, 3 * acts.CHUNK)
    assert watched.sizes == [acts.CHUNK] * 3


async def test_runs_are_written_in_batches_that_are_small(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.post("/v1/jobs/batch", {"jobs": [{"task": "demo.echo", "schedule": LATER}] * (3 * acts.CHUNK)})
    watched = Watched(api.store, monkeypatch)
    assert await on_runs(api, "cancel", filter={}) == tally(3 * acts.CHUNK, 3 * acts.CHUNK)
    assert watched.sizes == [acts.CHUNK] * 3


async def test_a_change_that_comes_between_is_not_lost(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await api.create(schedule=LATER)
    find, patched = api.store.jobs, list[bool]()

    async def patch_after_read(job_ids: Sequence[JobId]) -> Any:
        found = await find(job_ids)
        if not patched:
            patched.append(True)
            await api.ask("PATCH", f"/v1/jobs/{job['id']}", 200, json={"priority": 7})
        return found

    monkeypatch.setattr(api.store, "jobs", patch_after_read)
    assert await on_jobs(api, "pause", filter={}) == tally(1, 1)
    shown = await api.get(f"/v1/jobs/{job['id']}")
    assert (shown["status"], shown["priority"]) == ("paused", 7)


async def test_events_tell_of_many_as_of_one(api: Api) -> None:
    await a_mix(api)
    position = await api.store.events.last()
    for action in ("pause", "resume", "cancel"):
        await on_jobs(api, action, filter={})
    batches = await api.store.events.read(after=position, owner="local", limit=100)
    told: Counter[str] = Counter()
    for batch in batches:
        told[batch.kind.value] += len(batch.subjects)
    assert told == {"job.paused": 3, "job.resumed": 3, "run.cancelled": 2, "job.cancelled": 1}


async def test_a_repeated_act_is_answered_as_before(api: Api) -> None:
    await a_mix(api)
    body, headers = {"action": "run", "filter": {}}, {"Idempotency-Key": "k"}
    first = await api.client.post("/v1/jobs/bulk", json=body, headers=headers)
    again = await api.client.post("/v1/jobs/bulk", json=body, headers=headers)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert len(await api.hand.claim()) == 3


async def test_an_act_whose_answer_was_lost_runs_each_job_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_mix(api)
    body, headers = {"action": "run", "filter": {}}, {"Idempotency-Key": "k"}

    async def lost(self: Idempotency, ask: object, answer: str) -> str:
        raise Unavailable("the store went away")

    with monkeypatch.context() as patched:
        patched.setattr(Idempotency, "keep", lost)
        assert (await api.client.post("/v1/jobs/bulk", json=body, headers=headers)).status_code == 503
    again = await api.client.post("/v1/jobs/bulk", json=body, headers=headers)
    assert again.json() == tally(3, 3)
    assert len(await api.hand.claim()) == 3


async def test_what_one_owner_does_to_many_waits_for_its_turn(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_mix(api)
    at_once: list[int] = []
    busy = 0
    perform = acts._perform

    async def counted(*args: Any, **keywords: Any) -> Any:
        nonlocal busy
        busy += 1
        at_once.append(busy)
        try:
            return await perform(*args, **keywords)
        finally:
            busy -= 1

    monkeypatch.setattr(acts, "_perform", counted)
    answers = await asyncio.gather(*(on_jobs(api, "pause", filter={}) for _ in range(3)))
    assert [answer["done"] for answer in answers] == [3, 0, 0]
    assert at_once == [1, 1, 1]


@pytest.mark.acceptance
@pytest.mark.parametrize("schedule", [LATER, "every 1h"])
async def test_others_are_served_while_thousands_are_changed(api: Api, schedule: str) -> None:
    many = 10_000 if schedule == LATER else 1_000
    jobs = {"jobs": [{"task": "demo.echo", "schedule": schedule, "queue": "many"}] * many}
    assert (await api.post("/v1/jobs/batch", jobs))["accepted"] == many
    acting = asyncio.create_task(_to_the_end(api, "cancel", {"queue": "many"}))
    took: list[float] = []
    while not acting.done():
        began = time.perf_counter()
        await api.create()
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    assert await acting == many
    took.sort()
    assert took[int(len(took) * 0.99)] < 0.05, f"p50 {took[len(took) // 2]:.3f} s, max {took[-1]:.3f} s"


async def _to_the_end(api: Api, action: str, which: Any) -> int:
    """Act on all that is selected, and return how many that were."""
    done, more = 0, dict[str, Any]()
    while True:
        answer = await on_jobs(api, action, filter=which, **more)
        done, more = done + answer["done"], {"cursor": answer["cursor"]}
        if answer["cursor"] is None:
            return done


WRONG: Sequence[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"ids": ["a"], "filter": {}}, None),
    ({"ids": []}, "/ids"),
    ({"ids": ["a"] * 10_001}, "/ids"),
    ({"ids": [1]}, "/ids/0"),
    ({"filter": {"tusk": "x"}}, "/filter/tusk"),
    ({"filter": {"status": "nope"}}, "/filter/status"),
    ({"filter": {"queue": ""}}, "/filter/queue"),
    ({"filter": []}, "/filter"),
    ({"filter": {}, "dry_run": 1}, "/dry_run"),
    ({"filter": {}, "cursor": "7."}, "/cursor"),
    ({"filter": {}, "cursor": "0.nonsense"}, "/cursor"),
    ({"ids": ["a"], "cursor": "1"}, "/cursor"),
    ({"filter": {}, "action": "delete"}, "/action"),
]


@pytest.mark.parametrize(("body", "pointer"), WRONG)
@pytest.mark.parametrize("path", ["/v1/jobs/bulk", "/v1/runs/bulk"])
async def test_a_wrong_act_is_refused_and_changes_nothing(api: Api, path: str, body: Any, pointer: str | None) -> None:
    await a_mix(api)
    before = await api.get("/v1/jobs")
    problem = await api.post(path, {"action": "cancel", **body}, 422)
    assert [error["pointer"] for error in problem["errors"]][:1] == ([] if pointer is None else [pointer])
    assert await api.get("/v1/jobs") == before


async def test_the_job_of_a_filter_is_read_as_an_id(api: Api) -> None:
    problem = await on_runs(api, "cancel", 422, filter={"job_id": "7"})
    assert problem["errors"][0]["pointer"] == "/filter/job_id"
    problem = await on_runs(api, "cancel", 422, filter={"start_time": "yesterday"})
    assert problem["errors"][0]["pointer"] == "/filter/start_time"


async def test_what_is_no_job_is_not_selected(api: Api) -> None:
    [job, *_] = await a_mix(api)
    assert await on_jobs(api, "pause", ids=[job, job, "job_" + "0" * 32, "nonsense", ""]) == tally(1, 1)
