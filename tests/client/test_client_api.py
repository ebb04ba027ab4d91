"""Everything that the server offers, through the client, as typed values."""

from datetime import timedelta

import pytest

from horae import AsyncClient, cron
from horae.client import Absent, BulkResult, InConflict, Outdated, RequestInvalid, Resolved
from horae.core.errors import Conflict, Invalid, NotFound, RevisionChanged
from tests.api.harness import START, Hand

HOUR = timedelta(hours=1)


async def failed_run(client: AsyncClient, hand: Hand, message: str = "no luck") -> str:
    job = await client.jobs.create("demo.fail", max_retries=0)
    [run] = await hand.claim()
    await hand.fail(await hand.start(run), message)
    return job.id.replace("job_", "run_")


async def test_a_job_is_created_read_changed_and_deleted(client: AsyncClient) -> None:
    job = await client.jobs.create(
        "demo.echo",
        params={"message": "hi"},
        schedule="0 9 * * *",
        name="morning",
        labels={"team": "a"},
        retry={"initial_seconds": 1},
    )
    assert (job.name, job.params, job.schedule["type"], job.revision) == ("morning", {"message": "hi"}, "cron", 1)
    assert (job.retry.initial_seconds, job.retry.factor, job.labels) == (1, 2, {"team": "a"})
    assert job.created_at == START
    assert await client.jobs.get(job.id) == job
    changed = await client.jobs.patch(job.id, priority=7, name=None, if_match=job.revision)
    assert (changed.priority, changed.name, changed.revision) == (7, None, 2)
    whole = await client.jobs.put(job.id, "demo.echo", schedule="0 10 * * *", if_match=changed.revision)
    assert (whole.priority, whole.params, whole.schedule["expression"]) == (0, {}, "0 10 * * *")
    assert (await client.jobs.delete(job.id)).status == "cancelled"
    with pytest.raises(InConflict):
        await client.jobs.pause(job.id)


async def test_a_schedule_may_be_an_instant_an_object_or_made_in_code(client: AsyncClient) -> None:
    at = await client.jobs.create("demo.echo", schedule=START + HOUR)
    every = await client.jobs.create("demo.echo", schedule={"type": "every", "seconds": 60})
    coded = await client.jobs.create("demo.echo", schedule=cron("0 9 * * mon-fri", tz="Europe/Paris"))
    assert (at.schedule["type"], at.next_run_at) == ("at", START + HOUR)
    assert every.schedule["seconds"] == 60
    assert (coded.schedule["expression"], coded.schedule["timezone"]) == ("0 9 * * mon-fri", "Europe/Paris")


async def test_what_is_wrong_is_an_error_of_the_tree_with_what_the_server_said(client: AsyncClient) -> None:
    with pytest.raises(RequestInvalid) as invalid:
        await client.jobs.create("demo.echo", schedule="whenever")
    assert isinstance(invalid.value, Invalid)
    assert (invalid.value.status, invalid.value.code) == (422, "invalid_schedule")
    assert invalid.value.errors[0].pointer == invalid.value.faults[0].pointer == "/schedule"
    with pytest.raises(Absent) as absent:
        await client.jobs.get("job_" + "0" * 32)
    assert isinstance(absent.value, NotFound)
    job = await client.jobs.create("demo.echo", schedule="every 1h", key="one")
    with pytest.raises(Outdated) as outdated:
        await client.jobs.patch(job.id, priority=1, if_match=99)
    assert isinstance(outdated.value, RevisionChanged)
    with pytest.raises(InConflict) as conflict:
        await client.jobs.create("demo.echo", schedule="every 1h", key="one")
    assert isinstance(conflict.value, Conflict)
    assert conflict.value.code == "key_taken"


async def test_upsert_creates_and_then_replaces(client: AsyncClient) -> None:
    made = await client.jobs.upsert("nightly / eu", "demo.echo", schedule="0 2 * * *")
    again = await client.jobs.upsert("nightly / eu", "demo.echo", schedule="0 3 * * *")
    assert (again.id, again.key, again.schedule["expression"]) == (made.id, "nightly / eu", "0 3 * * *")


async def test_lists_are_iterated_over_all_pages(client: AsyncClient) -> None:
    made = [(await client.jobs.create("demo.echo", schedule="every 1h")).id for _ in range(5)]
    assert [job.id async for job in client.jobs.list(limit=2)] == made[::-1]
    page = await client.jobs.page(limit=2)
    assert [job.id for job in page.items] == made[:2:-1]
    assert page.next_cursor is not None
    following = await client.jobs.page(limit=2, cursor=page.next_cursor)
    assert [job.id for job in following.items] == made[2:0:-1]
    assert [job async for job in client.jobs.list(status="paused")] == []


async def test_a_job_runs_and_its_run_is_told_in_full(client: AsyncClient, hand: Hand) -> None:
    job = await client.jobs.create("demo.echo", schedule="every 1h")
    run = await client.jobs.run(job.id, params={"message": "now"})
    assert (run.status, run.trigger, run.ended) == ("queued", "manual", False)
    assert (await client.runs.why(run.id)).reason
    [claimed] = await hand.claim()
    await hand.succeed(await hand.start(claimed), '{"a": 1}')
    done = await client.runs.get(run.id)
    assert (done.status, done.result, done.ended, done.attempts[0].outcome) == (
        "succeeded",
        {"a": 1},
        True,
        "succeeded",
    )
    assert (await client.jobs.status(job.id)).run_id == run.id
    assert [found.id async for found in client.jobs.runs(job.id)] == [run.id]
    assert [found.id async for found in client.runs.list(status="succeeded", end_time=START + HOUR)] == [run.id]
    assert [line async for line in client.runs.logs(run.id)] == []


async def test_pause_resume_what_comes_and_the_ledger(client: AsyncClient, hand: Hand) -> None:
    job = await client.jobs.create("demo.echo", schedule="every 1h")
    coming = await client.jobs.next(job.id, count=3)
    assert [each.at for each in coming] == [START + HOUR, START + 2 * HOUR, START + 3 * HOUR]
    assert (await client.jobs.pause(job.id)).status == "paused"
    hand.clock.advance(hours=2)
    assert (await client.jobs.resume(job.id, missed="skip")).status == "scheduled"
    [skipped] = [slot async for slot in client.jobs.slots(job.id) if slot.outcome == "skipped"]
    assert (skipped.start, skipped.end, skipped.count, skipped.reason) == (START + HOUR, START + 2 * HOUR, 2, "paused")


async def test_the_past_is_made_up_for(client: AsyncClient, hand: Hand) -> None:
    job = await client.jobs.create("demo.echo", schedule="0 * * * *")
    hand.clock.advance(hours=5)
    made = await client.jobs.backfill(job.id, start=START - 3 * HOUR, end=START - HOUR)
    assert (made.job_id, made.runs) == (job.id, 3)


async def test_a_batch_is_cut_into_requests_and_tells_its_progress(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.client.jobs.BATCH", 4)
    reported: list[int] = []
    jobs = [{"task": "demo.echo"}] * 5 + [{"task": "no.such.task"}] + [{"task": "demo.echo", "schedule": START}] * 3
    result = await client.jobs.batch(jobs, progress=reported.append)  # type: ignore[arg-type]
    assert (result.accepted, result.rejected, reported) == (8, 1, [4, 8, 9])
    assert [item.error is not None for item in result.items].index(True) == 5
    assert result.items[5].error is not None
    assert result.items[5].error.code == "unknown_task"


async def test_dead_letters_are_listed_grouped_requeued_and_discarded(client: AsyncClient, hand: Hand) -> None:
    first, second, third = [await failed_run(client, hand, "one" if i < 2 else "other") for i in range(3)]
    assert {run.id async for run in client.dead_letters.list(limit=2)} == {first, second, third}
    most, _ = await client.dead_letters.groups(task="demo.fail")
    assert (most.count, most.error.type, most.error.message) == (2, "DemoError", "one")
    assert await client.dead_letters.requeue([first]) == Resolved(matched=1, done=1, remaining=0)
    reported: list[Resolved] = []
    rest = await client.dead_letters.discard({"error": "DemoError"}, repeat=True, progress=reported.append)
    assert (rest.done, rest.remaining, reported[-1]) == (2, 0, rest)
    assert [run async for run in client.dead_letters.list()] == []


async def test_many_jobs_and_runs_are_acted_on_at_once(client: AsyncClient, hand: Hand) -> None:
    jobs = [await client.jobs.create("demo.echo", queue="mail", schedule=START + HOUR) for _ in range(3)]
    counted = await client.jobs.bulk("pause", {"queue": "mail"}, dry_run=True)
    assert counted == BulkResult(matched=3, done=0, remaining=3, cursor=None)
    assert (await client.jobs.bulk("pause", [jobs[0].id])).done == 1
    assert (await client.jobs.bulk("resume", {"status": "paused"}, missed="once")).done == 1
    reported: list[BulkResult] = []
    done = await client.runs.bulk("cancel", {"queue": "mail"}, repeat=True, progress=reported.append)
    assert (done.done, reported) == (3, [done])
    failed = await failed_run(client, hand)
    assert (await client.runs.bulk("retry", {failed})).done == 1


async def test_a_failed_run_is_retried_as_a_new_run(client: AsyncClient, hand: Hand) -> None:
    failed = await failed_run(client, hand)
    again = await client.runs.retry(failed, params={"times": 0})
    assert (again.id != failed, again.trigger) == (True, "requeue")
    with pytest.raises(InConflict):
        await client.runs.retry(failed)
    assert (await client.runs.cancel(again.id)).status == "cancelled"


async def test_queues_workers_tasks_and_previews(client: AsyncClient, hand: Hand) -> None:
    await client.jobs.create("demo.echo", queue="mail")
    limited = await client.queues.update("mail", concurrency=3)
    assert (limited.name, limited.concurrency, limited.paused) == ("mail", 3, False)
    assert (await client.queues.pause("mail")).paused
    assert (await client.queues.update("mail", concurrency=None)).concurrency is None
    assert not (await client.queues.resume("mail")).paused
    [queue] = [queue for queue in await client.queues.list() if queue.name == "mail"]
    assert (queue.depth, queue.running) == (1, 0)
    [worker] = await client.workers.list()
    assert (worker.id, worker.name) == (hand.id, "hand")
    assert "demo.echo" in [task.name for task in await client.tasks.list()]
    preview = await client.preview("0 9 * * *", count=2, after=START)
    assert (preview.description, len(preview.fires)) == ("at 09:00 every day (UTC)", 2)


async def test_how_much_an_owner_keeps(client: AsyncClient) -> None:
    await client.jobs.create("demo.echo", schedule="2099-01-01T00:00:00Z")
    usage = await client.usage()
    assert (usage.owner, usage.waiting.used, usage.waiting.limit) == ("local", 1, None)
    assert (await client.usage(owner="other")).waiting.used == 0


async def test_what_has_no_method_can_still_be_asked_for(client: AsyncClient) -> None:
    assert (await client.request("GET", "/v1/jobs", query={"limit": 1}))["items"] == []
    assert "horae_runs_total" in await client.text("/metrics")
