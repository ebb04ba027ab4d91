"""Looking up many jobs at once, and what runs anywhere."""

from horae.core.job_rules import job_of
from horae.core.model import JobId, RunId, State
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import given_ended, given_job, given_running, new_id, one_shot


async def test_many_jobs_are_found_at_once_whatever_they_are_and_whoever_owns_them(store: Store) -> None:
    recurring = await given_job(store)
    [ended] = await given_ended(store, one_shot(owner="bob"))
    waiting = one_shot()
    await acts.create(store, [waiting])
    ids = [recurring.id, JobId(new_id()), waiting.job_id, ended.job_id]
    found = await store.jobs(ids)
    assert found == {recurring.id: recurring, waiting.job_id: job_of(waiting), ended.job_id: job_of(ended)}
    assert await store.jobs([]) == {}


async def test_many_runs_are_found_at_once_alive_or_ended_and_whoever_owns_them(store: Store) -> None:
    [ended] = await given_ended(store, one_shot(owner="bob"))
    [running] = await given_running(store, one_shot())
    waiting = one_shot()
    await acts.create(store, [waiting])
    found = await store.runs([waiting.id, RunId(new_id()), running.id, ended.id])
    assert found == {waiting.id: waiting, running.id: running, ended.id: ended}
    assert await store.runs([]) == {}


async def test_a_run_of_a_recurring_job_is_no_job(store: Store) -> None:
    job = await given_job(store)
    run = one_shot(schedule=None, job_id=job.id)
    await acts.create(store, [run])
    assert await store.jobs([JobId(run.id)]) == {}


async def test_what_runs_is_listed_for_all_owners_together(store: Store) -> None:
    running = await given_running(store, one_shot(), one_shot(owner="bob"))
    await given_ended(store, one_shot())
    await acts.create(store, [one_shot()])
    listing = await store.list_runs(RunFilter(states=frozenset({State.RUNNING})), cursor=None, limit=10)
    assert {run.id for run in listing.items} == {run.id for run in running}
    assert listing.cursor is None
