"""The ids within a range: of jobs and runs, live or ended, of every owner, newest first, no more than asked for."""

from horae.ports.reader import KnownId
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import NOW, given_ended, given_job, new_id, one_shot, recurring, slot_run

LOWEST, HIGHEST = "0" * 32, "f" * 32


async def test_ids_of_jobs_and_runs_are_found_by_their_range(store: Store) -> None:
    before = new_id()
    [ended] = await given_ended(store, one_shot(owner="cy"))
    job = recurring(owner="ada")
    planned = slot_run(job, NOW)
    await given_job(store, job, planned)
    once = one_shot(owner="ben")
    await acts.create(store, [once])

    found = await store.ids(before, new_id(), limit=10)

    assert found == [
        KnownId(id=once.id, owner="ben", job=True, run=True),
        KnownId(id=planned.id, owner="ada", job=False, run=True),
        KnownId(id=job.id, owner="ada", job=True, run=False),
        KnownId(id=ended.id, owner="cy", job=True, run=True),
    ]
    assert await store.ids(once.id, once.id, limit=10) == found[:1]
    assert await store.ids(LOWEST, before, limit=10) == []
    assert await store.ids(LOWEST, HIGHEST, limit=2) == found[:2]
