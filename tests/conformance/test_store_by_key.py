"""The job that holds a key: whatever kind it is, as long as it is not finished."""

from horae.core.decisions.results import cancel, start, succeed
from horae.core.job_rules import job_of
from horae.core.model import JobStatus
from horae.core.values import replace
from horae.lookup import find_job_by_key
from horae.ports.store import Store
from tests import acts
from tests.acts import JobChange
from tests.conformance.builders import DAY, NOW, ODD, firing, given_claimed, given_job, one_shot, recurring


async def test_a_one_shot_is_found_by_its_key_until_it_ends(store: Store) -> None:
    run = one_shot(key=ODD)
    assert await find_job_by_key(store, "ada", ODD) is None
    [taken] = await given_claimed(store, run)
    assert await find_job_by_key(store, "ada", ODD) == job_of(taken)
    assert await store.settle([succeed(start(taken, NOW), None, NOW)]) == [True]
    assert await find_job_by_key(store, "ada", ODD) is None


async def test_a_one_shot_that_is_cancelled_holds_its_key_no_more(store: Store) -> None:
    run = one_shot(NOW + DAY, key="k")
    await acts.create(store, [run])
    assert await store.settle([cancel(run, NOW)]) == [True]
    assert await find_job_by_key(store, "ada", "k") is None


async def test_a_recurring_job_is_found_by_its_key_until_it_is_over(store: Store) -> None:
    job = recurring(key="k")
    await given_job(store, job)
    assert await find_job_by_key(store, "ada", "k") == job
    cancelled = replace(job, status=JobStatus.CANCELLED, revision=2)
    assert await acts.change(store, JobChange(job=cancelled, expected=1)) is not None
    assert await find_job_by_key(store, "ada", "k") is None


async def test_a_job_that_finishes_by_itself_holds_its_key_no_more(store: Store) -> None:
    job = recurring(key="k")
    await given_job(store, job)
    done = firing(job, next_fire_at=None, plan_at=None, status=JobStatus.FINISHED)
    assert await acts.fire(store, [done]) == [True]
    assert await find_job_by_key(store, "ada", "k") is None


async def test_a_key_belongs_to_its_owner(store: Store) -> None:
    mine, yours = one_shot(key="k"), recurring(key="k", owner="bob")
    await acts.create(store, [mine, firing(yours)])
    assert await find_job_by_key(store, "ada", "k") == job_of(mine)
    assert await find_job_by_key(store, "bob", "k") == yours
    assert await find_job_by_key(store, "eve", "k") is None


async def test_who_lost_a_key_is_not_found_by_it(store: Store) -> None:
    first, second = one_shot(key="k"), one_shot(key="k")
    assert await acts.create(store, [first]) == [first.job_id]
    assert await acts.create(store, [second]) == [first.job_id]
    assert await find_job_by_key(store, "ada", "k") == job_of(first)
