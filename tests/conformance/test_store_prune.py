"""Retention: whole days of history go, with everything that belongs to them; what lives stays."""

from datetime import date, timedelta

from horae.core.changes import Change
from horae.core.decisions.results import start, succeed
from horae.core.model import Job, JobStatus, Run
from horae.core.records import ScheduleTrail
from horae.lookup import find_job, find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DAY,
    NOW,
    attempts_of,
    claimed,
    failed,
    firing,
    given_ended,
    given_job,
    given_node,
    ids,
    one_shot,
    recurring,
    retried,
    skipped,
    slot_run,
)
from tests.conformance.test_store_trails import a_trail

TODAY = NOW.date()
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0, microsecond=0)


async def prune(store: Store, before: date, limit: int = 1000) -> int:
    """Prune to the end; how many steps it took."""
    steps = 0
    while await store.prune(now=NOW, before=before, limit=limit):
        steps += 1
        assert steps < 100
    return steps


async def test_days_before_go_and_the_day_itself_stays(store: Store) -> None:
    ends = [MIDNIGHT - DAY, MIDNIGHT - timedelta(microseconds=1), MIDNIGHT, NOW]
    runs = [(await given_ended(store, one_shot(NOW - DAY), at=at))[0] for at in ends]

    assert await prune(store, TODAY) >= 1

    left = await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=10)
    assert sorted(ids(left.items)) == sorted(ids(runs[2:]))
    assert await find_run(store, runs[0].id, owner=None) is None
    assert await store.prune(now=NOW, before=TODAY, limit=10) == 0


async def test_attempts_go_with_their_runs(store: Store) -> None:
    async def given_failed(at_days_ago: int) -> Run:
        run = one_shot(NOW - 10 * DAY)
        await acts.create(store, [run])
        [held] = await claimed(store, await given_node(store))
        result = failed(start(held, NOW), NOW - at_days_ago * DAY)
        await store.settle([result])
        return result.run

    old, new = await given_failed(5), await given_failed(1)
    await prune(store, (NOW - 3 * DAY).date())
    assert await attempts_of(store, old.id) == []
    assert len(await attempts_of(store, new.id)) == 1


async def test_what_lives_is_never_pruned(store: Store) -> None:
    waiting, held = one_shot(NOW - 50 * DAY), one_shot(NOW - 50 * DAY)
    job = recurring(created_at=NOW - 50 * DAY)
    await acts.create(store, [waiting, held, firing(job, slot_run(job, NOW - 50 * DAY))])
    node = await given_node(store)
    runs = await claimed(store, node, limit=1)
    await store.settle([retried(start(run, NOW - 40 * DAY), NOW - 40 * DAY) for run in runs])

    await prune(store, TODAY)

    assert len((await store.list_runs(RunFilter(), cursor=None, limit=10)).items) == 3
    assert await find_job(store, job.id, owner=None) is not None


async def test_skips_of_old_slots_go(store: Store) -> None:
    job = await given_job(store)
    old, new = skipped(job, NOW - 5 * DAY, NOW - 4 * DAY, 3), skipped(job, NOW - 4 * DAY, NOW, 3)
    await acts.fire(store, [firing(job, skips=(old, new))])
    await prune(store, TODAY)
    assert (await store.ledger(job.id, start=NOW - 9 * DAY, end=NOW, limit=5)).skips == [new]


async def test_old_blobs_go_unless_somebody_needs_them(store: Store) -> None:
    finished = recurring(params_blob="params/c", status=JobStatus.FINISHED)
    await store.blobs.put([(key, b"x") for key in ("logs/a", "params/b", "params/c", "params/d")])
    await acts.create(store, [one_shot(params_blob="params/b"), firing(finished)])

    today = (await store.time()).date()
    await prune(store, today)
    assert len(await store.blobs.under("", limit=10)) == 4, "they are of today"
    await prune(store, today + DAY)

    assert [key for key, _ in await store.blobs.under("", limit=10)] == ["params/b", "params/c"]


async def test_pruning_goes_in_bounded_steps(store: Store) -> None:
    runs = [one_shot(NOW - 9 * DAY) for _ in range(25)]
    await acts.create(store, runs)
    held = await claimed(store, await given_node(store))
    await store.settle([succeed(start(run, NOW), None, NOW - 5 * DAY) for run in held])
    await prune(store, TODAY, limit=10)
    assert (await store.list_runs(RunFilter(), cursor=None, limit=10)).items == []


async def test_cancelled_jobs_go_with_their_history_and_what_is_told_of_them(store: Store) -> None:
    def cancelled(**changes: object) -> Job:
        return recurring(status=JobStatus.CANCELLED, plan_at=None, next_fire_at=None, **changes)

    old, recent = cancelled(updated_at=NOW - 3 * DAY), cancelled(updated_at=NOW)
    with_run = cancelled(updated_at=NOW - 3 * DAY)
    finished = recurring(status=JobStatus.FINISHED, updated_at=NOW - 3 * DAY)
    paused = recurring(status=JobStatus.PAUSED, updated_at=NOW - 3 * DAY)
    await acts.create(store, [firing(job) for job in (old, recent, finished, paused)])
    await acts.create(store, [firing(with_run, slot_run(with_run, NOW))])
    trails = [a_trail(job_id=job.id) for job in (old, recent)]
    await store.apply([Change(puts=tuple(trails))])

    await prune(store, TODAY)

    found = await store.jobs([job.id for job in (old, recent, with_run, finished, paused)])
    assert found.keys() == {recent.id, with_run.id, finished.id, paused.id}
    assert await store.records(ScheduleTrail, owner=old.owner) == trails[1:]
