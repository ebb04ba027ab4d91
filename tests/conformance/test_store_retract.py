"""Runs that a node holds and that a pause takes back: the slot is open again, and nothing is told twice."""

from datetime import datetime

import pytest

from horae.core.decisions.results import give_back, start, succeed
from horae.core.model import Job, JobStatus, NodeId, Reason, Run
from horae.core.values import replace
from horae.jobs.optimistic import write_change
from horae.lookup import find_job, find_run
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange, Retraction
from tests.clocks import ManualClock
from tests.conformance.builders import (
    NOW,
    SECOND,
    claimed,
    firing,
    given_claimed,
    given_job,
    given_node,
    ids,
    one_shot,
    recurring,
    retried,
    slot_run,
)


async def given_held(store: Store, *slots: datetime) -> tuple[Job, list[Run], NodeId]:
    """A job whose runs a node holds ahead of their time."""
    made = recurring(next_fire_at=NOW + 10 * SECOND)
    job = await given_job(store, made, *(slot_run(made, slot) for slot in slots))
    node = await given_node(store)
    runs = await claimed(store, node, until=NOW + 10 * SECOND)
    return job, sorted(runs, key=lambda run: run.due_at), node


async def given_status(store: Store, job: Job, status: JobStatus) -> None:
    changed = replace(job, status=status, plan_at=None, revision=job.revision + 1)
    assert await acts.change(store, JobChange(job=changed, expected=job.revision)) is not None


async def stored(store: Store, job: Job) -> Job:
    found = await find_job(store, job.id, owner=None)
    assert found is not None
    return found


async def test_a_held_run_of_a_paused_job_is_taken_back_with_its_slot(store: Store) -> None:
    job, [run], _ = await given_held(store, NOW + SECOND)
    await given_status(store, job, JobStatus.PAUSED)
    assert await acts.retract(store, [run], now=NOW) == [Retraction.TAKEN_BACK]
    assert await find_run(store, run.id, owner=None) is None
    assert (await stored(store, job)).next_fire_at == run.slot


async def test_several_are_taken_back_to_the_earliest(store: Store) -> None:
    job, runs, _ = await given_held(store, NOW + SECOND, NOW + 2 * SECOND)
    await given_status(store, job, JobStatus.PAUSED)
    assert await acts.retract(store, runs, now=NOW) == [Retraction.TAKEN_BACK] * 2
    assert (await stored(store, job)).next_fire_at == NOW + SECOND


async def test_a_run_of_a_job_that_was_resumed_goes_on(store: Store) -> None:
    _, [run], _ = await given_held(store, NOW + SECOND)
    assert await acts.retract(store, [run], now=NOW) == [Retraction.GOES_ON]
    assert await find_run(store, run.id, owner=None) is not None


async def test_a_run_that_is_due_goes_on(store: Store) -> None:
    job, [run], _ = await given_held(store, NOW + SECOND)
    await given_status(store, job, JobStatus.PAUSED)
    assert await acts.retract(store, [run], now=NOW + SECOND) == [Retraction.GOES_ON]


async def test_a_slot_before_one_that_has_its_run_is_not_opened_again(store: Store) -> None:
    job, [first, second], _ = await given_held(store, NOW + SECOND, NOW + 2 * SECOND)
    await store.start([start(second, NOW)])
    await given_status(store, job, JobStatus.PAUSED)
    assert await acts.retract(store, [first], now=NOW) == [Retraction.GOES_ON]
    assert (await stored(store, job)).next_fire_at == job.next_fire_at


async def test_an_old_fence_takes_nothing_back(store: Store) -> None:
    job, [run], _ = await given_held(store, NOW + SECOND)
    await given_status(store, job, JobStatus.PAUSED)
    assert await acts.retract(store, [replace(run, fence=run.fence - 1)], now=NOW) == [Retraction.GOES_ON]
    assert await find_run(store, run.id, owner=None) is not None


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.FINISHED])
async def test_a_run_of_a_job_that_is_over_is_told_so(store: Store, status: JobStatus) -> None:
    job, [run], _ = await given_held(store, NOW + SECOND)
    await given_status(store, job, status)
    assert await acts.retract(store, [run], now=NOW) == [Retraction.OVER]


async def test_a_one_shot_that_was_deleted_before_it_started_is_over(store: Store) -> None:
    [run] = await given_claimed(store, one_shot())
    await acts.request_stop(store, [run.id], Reason.PAUSED)  # how a delete that keeps what is running stops it
    assert await acts.retract(store, [run], now=NOW) == [Retraction.OVER]


async def revised(store: Store, job: Job) -> Job:
    """The job after an update that keeps its schedule and rewinds it."""
    changed = replace(job, revision=job.revision + 1, updated_at=job.updated_at + SECOND)
    change = JobChange(job=changed, expected=job.revision, retract_after=NOW, rewind=True)
    assert await acts.change(store, change) is not None
    return await stored(store, job)


async def live_ids(store: Store, runs: list[Run]) -> list[str]:
    return ids([run for run in runs if await find_run(store, run.id, owner=None) is not None])


async def test_a_run_that_has_begun_is_never_deleted(store: Store) -> None:
    """Its attempt may have started and failed after the request read the clock."""
    job, [begun, waiting], _ = await given_held(store, NOW + SECOND, NOW + 2 * SECOND)
    assert await store.settle([retried(start(begun, NOW)), give_back(waiting, NOW)]) == [True, True]
    assert (await revised(store, job)).next_fire_at == waiting.slot
    assert await live_ids(store, [begun, waiting]) == ids([begun])


async def test_a_slot_whose_run_stays_gets_no_second_run(store: Store) -> None:
    job, [returned, held], _ = await given_held(store, NOW + SECOND, NOW + 2 * SECOND)
    assert await store.settle([give_back(returned, NOW)]) == [True]
    rewound = await revised(store, job)
    assert rewound.next_fire_at == returned.slot
    again = [slot_run(rewound, NOW + SECOND), slot_run(rewound, NOW + 2 * SECOND)]
    assert await acts.fire(store, [firing(rewound, *again, next_fire_at=NOW + 10 * SECOND)]) == [True]
    assert await live_ids(store, [returned, held, *again]) == ids([held, again[0]])


async def test_a_slot_of_a_new_schedule_gets_its_run_although_a_cancelled_one_is_still_held(store: Store) -> None:
    job, [held], _ = await given_held(store, NOW + SECOND)
    await acts.request_stop(store, [held.id], Reason.CANCELLED)
    changed = await revised(store, job)
    again = slot_run(changed, NOW + SECOND)
    assert await acts.fire(store, [firing(changed, again, next_fire_at=NOW + 10 * SECOND)]) == [True]
    assert await live_ids(store, [held, again]) == ids([held, again])


async def test_a_change_that_took_so_long_that_a_slot_came_due_begins_anew(store: Store) -> None:
    """The schedule that it replaces was in force at that slot, whatever the clock said when the request began."""
    job, [run], _ = await given_held(store, NOW + SECOND)
    await store.settle([succeed(start(run, NOW + SECOND), None, NOW + SECOND)])
    changed = replace(job, revision=job.revision + 1)
    late, in_time = ManualClock(NOW + 2 * SECOND), ManualClock(NOW)
    assert await write_change(store, late, job, changed, retract_after=NOW, event=None) is None
    assert await write_change(store, in_time, job, changed, retract_after=NOW, event=None) == changed
