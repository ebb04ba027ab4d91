"""Planning: which jobs are looked at, firings and pages by compare-and-set, and changes of jobs."""

import asyncio
from datetime import datetime, timedelta

import pytest

from horae.core.decisions.firing import MAX_UNSTARTED, Due, Page
from horae.core.decisions.results import cancel, start
from horae.core.model import SHARDS, Job, JobStatus, Reason, Run, Skip, State, Trigger, shard_of
from horae.core.schedule.types import At, Every
from horae.core.values import replace
from horae.lookup import find_job, find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange
from tests.conformance.builders import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    a_backfill,
    claimed,
    firing,
    given_claimed,
    given_ended,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    recurring,
    retried,
    skipped,
    slot_run,
    spec,
    state_of,
    unusual_policy,
)
from tests.conformance.conftest import Connect

ALL = range(SHARDS)
TICK = timedelta(microseconds=1)


async def found_jobs(store: Store, now: datetime = NOW) -> list[str]:
    plannable = await store.plannable(ALL, now=now, limit=100)
    return [due.job.id for due in plannable.jobs]


async def slots_of(store: Store, job: Job) -> list[datetime | None]:
    ledger = await store.ledger(job.id, start=NOW - 100 * DAY, end=NOW + 100 * DAY, limit=1000)
    return [run.slot for run in ledger.runs]


# --- looking


async def test_jobs_are_looked_at_when_their_time_has_come(store: Store) -> None:
    past, now, later = (recurring(plan_at=NOW + delta) for delta in (-SECOND, timedelta(), TICK))
    never = recurring(plan_at=None)
    for job in (later, now, past, never):
        await given_job(store, job)

    plannable = await store.plannable(ALL, now=NOW, limit=10)

    assert list(plannable.jobs) == [Due(job=past), Due(job=now)]
    assert plannable.next_at == later.plan_at
    assert (await store.plannable(ALL, now=NOW + DAY, limit=10)).next_at is None


async def test_jobs_are_looked_at_by_those_who_have_their_shard(store: Store) -> None:
    jobs = [await given_job(store) for _ in range(20)]
    later = await given_job(store, recurring(plan_at=NOW + MINUTE))
    even, odd = range(0, SHARDS, 2), range(1, SHARDS, 2)

    for shards in (even, odd, [], [shard_of(jobs[0].id)]):
        plannable = await store.plannable(shards, now=NOW, limit=100)
        expected = [job.id for job in jobs if shard_of(job.id) in shards]
        assert sorted(due.job.id for due in plannable.jobs) == sorted(expected)
        assert plannable.next_at == (later.plan_at if shard_of(later.id) in shards else None)


async def test_the_longest_waiting_jobs_come_first(store: Store) -> None:
    jobs = [await given_job(store, recurring(plan_at=NOW - n * SECOND)) for n in range(10)]
    plannable = await store.plannable(ALL, now=NOW, limit=4)
    assert [due.job.id for due in plannable.jobs] == [job.id for job in reversed(jobs)][:4]


async def test_live_runs_are_counted_up_to_a_bound(store: Store) -> None:
    job, busy = recurring(), recurring()
    await given_job(store, job, *(slot_run(job, NOW - n * SECOND) for n in range(5)))
    await given_job(store, busy, *(slot_run(busy, NOW + DAY + n * SECOND) for n in range(MAX_UNSTARTED + 5)))
    node = await given_node(store)
    running, retrying, ended, _ = await claimed(store, node, limit=4)
    await store.start([start(running, NOW)])
    await store.settle([retried(start(retrying, NOW)), cancel(ended, NOW)])

    dues = {due.job.id: due for due in (await store.plannable(ALL, now=NOW, limit=10)).jobs}

    assert (dues[job.id].unstarted, dues[job.id].live) == (2, 4), "scheduled and claimed have not started"
    assert (dues[busy.id].unstarted, dues[busy.id].live) == (MAX_UNSTARTED, MAX_UNSTARTED)


async def test_backfills_are_looked_at_with_their_jobs(store: Store) -> None:
    job = recurring(plan_at=None)
    await given_job(store, job, slot_run(job, NOW))
    now, later = a_backfill(job), a_backfill(job, trigger=Trigger.BACKFILL, plan_at=NOW + SECOND)
    await acts.backfill(store, now)
    await acts.backfill(store, later)

    plannable = await store.plannable(ALL, now=NOW, limit=10)

    assert list(plannable.jobs) == []
    assert list(plannable.backfills) == [(now, Due(job=job, unstarted=1, live=1))]
    assert plannable.next_at == later.plan_at
    assert len((await store.plannable(ALL, now=NOW + SECOND, limit=1)).backfills) == 1
    assert list((await store.plannable([], now=NOW, limit=10)).backfills) == []


# --- firing


async def test_a_firing_moves_the_job_and_makes_its_runs(store: Store) -> None:
    job = await given_job(store)
    run, skip, backfill = slot_run(job, NOW), skipped(job, NOW - DAY, NOW - MINUTE, 5), a_backfill(job)
    fired = firing(
        job, run, skips=(skip,), backfill=backfill, next_fire_at=NOW + MINUTE, plan_at=NOW + SECOND, status=job.status
    )

    assert await acts.fire(store, [fired]) == [True]

    assert await find_job(store, job.id, owner=None) == replace(job, next_fire_at=NOW + MINUTE, plan_at=NOW + SECOND)
    ledger = await store.ledger(job.id, start=NOW - DAY, end=NOW + DAY, limit=10)
    assert (ledger.runs, ledger.skips, ledger.backfills) == ([run], [skip], [backfill])
    assert await found_jobs(store) == []


async def test_a_slot_that_was_cancelled_ahead_of_its_time_is_not_made_again(store: Store) -> None:
    """Its job is changed afterwards, which takes the runs around it back and sets the job back before it."""
    job = await given_job(store)
    runs = [slot_run(job, NOW + n * MINUTE) for n in range(3)]
    assert await acts.fire(store, [firing(job, *runs, next_fire_at=NOW + DAY)]) == [True]
    assert await store.settle([cancel(runs[1], NOW)]) == [True]
    changed = replace(job, next_fire_at=NOW + DAY, revision=job.revision + 1, updated_at=NOW + TICK)
    change = JobChange(job=changed, expected=job.revision, retract_after=NOW - TICK, rewind=True)
    assert await acts.change(store, change) is not None

    again = replace(changed, next_fire_at=NOW)
    fresh = [slot_run(again, NOW + n * MINUTE) for n in range(3)]
    assert await acts.fire(store, [firing(again, *fresh, next_fire_at=NOW + DAY)]) == [True]

    ledger = await store.ledger(job.id, start=NOW - DAY, end=NOW + DAY, limit=10)
    assert [run.id for run in ledger.runs] == [fresh[0].id, runs[1].id, fresh[2].id]

    caught_up = a_backfill(job, start=NOW + MINUTE, end=NOW + MINUTE)
    asked_for = a_backfill(job, start=NOW + MINUTE, end=NOW + MINUTE, trigger=Trigger.BACKFILL)
    for backfill in (caught_up, asked_for):
        await acts.backfill(store, backfill)
        page = slot_run(job, NOW + MINUTE, trigger=backfill.trigger)
        assert await acts.fill(store, [Page(backfill=backfill, runs=(page,), start=None, plan_at=NOW)]) == [True]
        assert (await find_run(store, page.id, owner=None) is None) == (backfill is caught_up)


async def test_a_firing_is_void_when_somebody_was_first(store: Store, connect: Connect) -> None:
    job = await given_job(store)
    first, second = (firing(job, slot_run(job, NOW), next_fire_at=NOW + n * MINUTE) for n in (1, 2))
    other = await connect()
    assert await acts.fire(store, [first]) == [True]
    assert await acts.fire(other, [second, first]) == [False, False]
    assert await slots_of(store, job) == [NOW]
    stored = await find_job(store, job.id, owner=None)
    assert stored is not None
    assert stored.next_fire_at == NOW + MINUTE


async def test_planners_that_race_fire_each_slot_once(store: Store, connect: Connect) -> None:
    jobs = [await given_job(store) for _ in range(30)]
    stores = [store, await connect(), await connect()]

    async def fire_all(one: Store) -> int:
        firings = [firing(job, slot_run(job, NOW), next_fire_at=NOW + MINUTE, plan_at=NOW + MINUTE) for job in jobs]
        return sum(await acts.fire(one, firings))

    assert sum(await asyncio.gather(*map(fire_all, stores))) == len(jobs)
    for job in jobs:
        assert await slots_of(store, job) == [NOW]


async def test_a_firing_of_an_old_revision_is_void(store: Store) -> None:
    job = await given_job(store)
    assert await acts.change(store, JobChange(job=replace(job, revision=2), expected=1)) is not None
    assert await acts.fire(store, [firing(job, slot_run(job, NOW), next_fire_at=NOW + MINUTE)]) == [False]
    assert await slots_of(store, job) == []


async def test_a_firing_of_a_job_that_does_not_exist_is_void(store: Store) -> None:
    job = recurring()
    assert await acts.fire(store, [firing(job, slot_run(job, NOW))]) == [False]


async def test_a_job_without_slots_can_be_looked_at_again_and_finished(store: Store) -> None:
    job = await given_job(store, recurring(next_fire_at=None))
    assert await acts.fire(store, [firing(job, plan_at=NOW + SECOND)]) == [True]
    again = replace(job, plan_at=NOW + SECOND)
    assert await acts.fire(store, [firing(again, plan_at=None, status=JobStatus.FINISHED)]) == [True]
    assert await find_job(store, job.id, owner=None) == replace(job, plan_at=None, status=JobStatus.FINISHED)
    assert await found_jobs(store, NOW + DAY) == []


async def test_one_batch_may_hold_many_firings(store: Store) -> None:
    jobs = [await given_job(store) for _ in range(50)]
    lost = recurring()
    firings = [
        firing(job, *(slot_run(job, NOW + n * SECOND) for n in range(3)), next_fire_at=NOW + DAY) for job in jobs
    ]
    assert await acts.fire(store, [*firings[:25], firing(lost), *firings[25:]]) == [True] * 25 + [False] + [True] * 25
    assert len(await claimed(store, await given_node(store), until=NOW + MINUTE)) == 150


# --- filling


async def test_a_page_of_a_backfill_moves_it_on(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    backfill = a_backfill(job)
    await acts.backfill(store, backfill)
    page = Page(backfill=backfill, runs=(slot_run(job, NOW),), start=NOW + MINUTE, plan_at=NOW + SECOND)

    assert await acts.fill(store, [page]) == [True]
    assert await acts.fill(store, [page]) == [False]

    [(moved, due)] = (await store.plannable(ALL, now=NOW + SECOND, limit=10)).backfills
    assert moved == replace(backfill, start=NOW + MINUTE, plan_at=NOW + SECOND)
    assert due.live == 1


async def test_a_page_without_further_slots_ends_the_backfill(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    backfill = a_backfill(job)
    await acts.backfill(store, backfill)
    page = Page(backfill=backfill, runs=(slot_run(job, NOW),), start=None, plan_at=NOW)
    assert await acts.fill(store, [page, page]) in ([True, False], [True, True])
    assert await acts.fill(store, [page]) == [False]
    assert list((await store.plannable(ALL, now=NOW + DAY, limit=10)).backfills) == []
    assert len((await store.ledger(job.id, start=NOW, end=NOW + DAY, limit=10)).backfills) == 0


async def test_a_page_leaves_slots_out_if_it_is_applied(store: Store) -> None:
    job = await given_job(store, recurring(plan_at=None))
    backfill = a_backfill(job)
    await acts.backfill(store, backfill)
    left_out = Skip(job_id=job.id, revision=1, start=backfill.start, end=backfill.end, count=5, reason=Reason.CANCELLED)
    page = Page(backfill=backfill, runs=(), start=None, plan_at=NOW, skips=(left_out,))

    assert await acts.fill(store, [page]) == [True]
    assert await acts.fill(store, [page]) == [False]

    assert list((await store.ledger(job.id, start=NOW - DAY, end=NOW + DAY, limit=10)).skips) == [left_out]


async def test_planners_that_race_fill_each_page_once(store: Store, connect: Connect) -> None:
    job = await given_job(store, recurring(plan_at=None))
    backfill = a_backfill(job)
    await acts.backfill(store, backfill)
    stores = [store, await connect(), await connect()]

    async def fill(one: Store) -> list[bool]:
        return await acts.fill(
            one, [Page(backfill=backfill, runs=(slot_run(job, NOW),), start=NOW + MINUTE, plan_at=NOW + SECOND)]
        )

    assert sorted(await asyncio.gather(*map(fill, stores))) == [[False], [False], [True]]
    assert await slots_of(store, job) == [NOW]


# --- changing


async def test_a_change_writes_every_field_of_the_job(store: Store) -> None:
    job = await given_job(store)
    changed = replace(
        job,
        spec=spec(
            task="other",
            params='{"a": 1}',
            params_blob="params/y",
            name="name",
            labels={"x": "y"},
            queue="mail",
            priority=7,
            ordering_key="o",
            policy=unusual_policy(),
            secrets="v1:y",
        ),
        schedule=Every(interval=DAY, anchor=NOW),
        status=JobStatus.PAUSED,
        next_fire_at=NOW + DAY,
        plan_at=None,
        revision=2,
        updated_at=NOW + SECOND,
    )
    answer = await acts.change(store, JobChange(job=changed, expected=1))
    assert answer is not None
    assert (answer.job, list(answer.stopped)) == (changed, [])
    assert await find_job(store, job.id, owner=None) == changed


async def test_a_change_of_an_old_revision_is_void(store: Store, connect: Connect) -> None:
    job = await given_job(store)
    run = slot_run(job, NOW + MINUTE)
    await acts.create(store, [run])
    other = await connect()
    changes = [JobChange(job=replace(job, revision=2), expected=1), JobChange(job=replace(job, revision=3), expected=2)]
    assert await acts.change(store, changes[1]) is None
    assert await acts.change(other, changes[0]) is not None
    assert await acts.change(store, replace(changes[0], retract_after=NOW)) is None
    assert await state_of(store, run) is State.SCHEDULED
    unknown = recurring()
    assert await acts.change(store, JobChange(job=unknown, expected=1)) is None


async def test_a_change_of_a_job_that_was_resumed_or_has_ended_since_is_void(store: Store) -> None:
    job = await given_job(store, recurring(status=JobStatus.PAUSED, plan_at=None))
    change = JobChange(job=replace(job, revision=2), expected=1, was=JobStatus.PAUSED)
    assert await acts.fire(store, [firing(job, next_fire_at=job.next_fire_at, status=JobStatus.SCHEDULED)]) == [True]

    assert await acts.change(store, change) is None
    current = await find_job(store, job.id, owner=None)
    assert current is not None
    assert (current.status, current.revision) == (JobStatus.SCHEDULED, 1)
    assert await acts.change(store, replace(change, was=JobStatus.SCHEDULED)) is not None


async def test_a_change_takes_back_what_is_not_yet_due(store: Store) -> None:
    job = recurring(next_fire_at=NOW + DAY)
    due, exact, soon, later = (slot_run(job, NOW + delta) for delta in (-SECOND, timedelta(), TICK, MINUTE))
    manual = replace(slot_run(job, NOW + MINUTE), trigger=Trigger.MANUAL, slot=None)
    asked = replace(slot_run(job, NOW + MINUTE), trigger=Trigger.BACKFILL)
    kept, gone = skipped(job, NOW - DAY, NOW, 3), skipped(job, NOW + SECOND, NOW + SECOND, 1, Reason.DST_GAP)
    await acts.create(store, [firing(job, due, exact, soon, later, skips=(kept, gone)), manual, asked])
    foreign = await given_job(store)
    untouched = slot_run(foreign, NOW + MINUTE)
    await acts.create(store, [untouched])

    changed = await acts.change(store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW))

    assert changed is not None
    assert changed.job.next_fire_at == NOW + DAY, "without rewind it is what the caller says"
    left = await store.list_runs(RunFilter(job_id=job.id), cursor=None, limit=10)
    assert sorted(ids(left.items)) == sorted(ids([due, exact, manual, asked]))
    assert await find_run(store, soon.id, owner=None) is None
    ledger = await store.ledger(job.id, start=NOW - DAY, end=NOW + DAY, limit=10)
    assert ledger.skips == [kept]
    assert await state_of(store, untouched) is State.SCHEDULED


async def test_rewinding_takes_the_job_back_to_the_earliest_slot_taken_back(store: Store) -> None:
    job = recurring(next_fire_at=NOW + DAY)
    slot = NOW + MINUTE
    jittery = slot_run(job, slot, due_at=slot + 5 * SECOND, wake_at=slot + 5 * SECOND)
    await given_job(store, job, jittery, slot_run(job, slot + MINUTE))
    change = JobChange(job=replace(job, revision=2, plan_at=None), expected=1, retract_after=NOW, rewind=True)

    changed = await acts.change(store, change)

    assert changed is not None
    assert changed.job == replace(job, revision=2, plan_at=None, next_fire_at=slot)
    assert await find_job(store, job.id, owner=None) == changed.job


async def test_rewinding_includes_slots_that_were_skipped_ahead(store: Store) -> None:
    job = recurring(next_fire_at=NOW + DAY)
    gap = skipped(job, NOW + SECOND, NOW + SECOND, 1, Reason.DST_GAP)
    await acts.create(store, [firing(job, slot_run(job, NOW + MINUTE), skips=(gap,))])
    changed = await acts.change(
        store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW, rewind=True)
    )
    assert changed is not None
    assert changed.job.next_fire_at == NOW + SECOND


async def test_rewinding_begins_at_what_the_store_knows(store: Store) -> None:
    """A planner that fired after the job was read has moved it; its slots must not be fired again."""
    job = await given_job(store)
    await acts.fire(store, [firing(job, slot_run(job, NOW), next_fire_at=NOW + MINUTE)])
    changed = await acts.change(
        store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW, rewind=True)
    )
    assert changed is not None
    assert changed.job.next_fire_at == NOW + MINUTE


@pytest.mark.parametrize("rewind", [True, False])
async def test_rewinding_a_job_without_further_slots(store: Store, rewind: bool) -> None:
    job = recurring(next_fire_at=None)
    await given_job(store, job, slot_run(job, NOW + MINUTE))
    changed = await acts.change(
        store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW, rewind=rewind)
    )
    assert changed is not None
    assert changed.job.next_fire_at == (NOW + MINUTE if rewind else None)


async def test_runs_that_a_node_holds_are_asked_to_stop(store: Store) -> None:
    job = recurring(next_fire_at=NOW + DAY)
    claimed_ahead = slot_run(job, NOW + SECOND)
    await given_job(store, job, claimed_ahead, slot_run(job, NOW))
    node = await given_node(store)
    held = await claimed(store, node, until=NOW + SECOND)
    assert len(held) == 2

    changed = await acts.change(
        store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW, rewind=True, stop=Reason.PAUSED)
    )

    assert changed is not None
    assert list(changed.stopped) == [claimed_ahead.id]
    assert changed.job.next_fire_at == NOW + DAY, "its slot was not taken back"
    assert await store.stops(node) == {claimed_ahead.id: Reason.PAUSED}


async def test_without_a_stop_what_is_held_goes_on(store: Store) -> None:
    job = recurring(next_fire_at=NOW + DAY)
    await given_job(store, job, slot_run(job, NOW + SECOND))
    node = await given_node(store)
    await claimed(store, node, until=NOW + SECOND)
    changed = await acts.change(store, JobChange(job=replace(job, revision=2), expected=1, retract_after=NOW))
    assert changed is not None
    assert list(changed.stopped) == []
    assert await store.stops(node) == {}


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.FINISHED])
async def test_a_job_that_is_over_frees_its_key(store: Store, status: JobStatus) -> None:
    job = await given_job(store, recurring(key="k"))
    over = replace(job, status=status, revision=2, next_fire_at=None, plan_at=None)
    assert await acts.change(store, JobChange(job=over, expected=1, retract_after=NOW)) is not None
    again = one_shot(key="k")
    assert await acts.create(store, [again]) == [again.job_id]


async def test_a_one_shot_that_waits_can_be_changed(store: Store) -> None:
    run = one_shot()
    await acts.create(store, [run])
    changed = replace(
        run,
        spec=spec(task="other", queue="mail", priority=3, name="n", labels={"a": "b"}, secrets="plain:{}"),
        schedule=At(time=NOW + DAY),
        due_at=NOW + DAY,
        wake_at=NOW + DAY,
        gate="g",
        paused=True,
        revision=2,
    )

    assert await acts.change_one_shot(store, changed, expected=1)

    assert await find_run(store, run.id, owner=None) == changed
    assert not await acts.change_one_shot(store, changed, expected=1)
    assert await acts.change_one_shot(store, replace(changed, paused=False, revision=3), expected=2)
    node = await given_node(store)
    assert ids(await claimed(store, node, tasks=["other"], queues=["mail"], until=NOW + DAY)) == [run.id]


async def given_moved_on(store: Store, how: str) -> Run:
    match how:
        case "claimed":
            return (await given_claimed(store, one_shot()))[0]
        case "running":
            return (await given_running(store, one_shot()))[0]
        case "ended":
            return (await given_ended(store, one_shot()))[0]
    return one_shot()


@pytest.mark.parametrize("how", ["claimed", "running", "ended", "unknown"])
async def test_a_one_shot_that_moved_on_is_not_changed(store: Store, how: str) -> None:
    run = await given_moved_on(store, how)
    before = await find_run(store, run.id, owner=None)
    moved = replace(run, due_at=NOW + DAY, wake_at=NOW + DAY, revision=2)
    assert not await acts.change_one_shot(store, moved, expected=1)
    assert await find_run(store, run.id, owner=None) == before
