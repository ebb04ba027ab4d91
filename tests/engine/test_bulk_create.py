"""Many jobs that differ only in their parameters: written in large batches, and told of exactly when that fails."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from horae.core.drafts import Draft
from horae.core.errors import Unavailable
from horae.core.model import JobId, Run
from horae.jobs import bulk_create
from horae.jobs.bulk_create import Interrupted
from horae.ports.store import Store
from tests import acts
from tests.engine.system import System
from tests.engine.test_jobs import jobs_of

DRAFT = Draft(task="echo", allow_unknown_task=True)


class Watched:
    """A store that knows how many batches were on their way at a time, and is away from one of them on."""

    def __init__(self, store: Store, *, away_from: int | None = None) -> None:
        self._store = store
        self._away_from = away_from
        self._on_their_way = 0
        self.batches = 0
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, items: Sequence[Run]) -> object:
        place = self.batches
        self.batches += 1
        self._on_their_way += 1
        self.most = max(self.most, self._on_their_way)
        await asyncio.sleep(0)
        try:
            if self._away_from is not None and place >= self._away_from:
                raise Unavailable("the store is down")
            return await acts.create(self._store, items)
        finally:
            self._on_their_way -= 1


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_create, "BATCH", 10)


async def create(system: System, store: Watched, draft: Draft, count: int) -> list[JobId]:
    params = [f'{{"n":{number}}}' for number in range(count)]
    return await jobs_of(system, cast(Store, store)).bulk.create(draft, params, owner="local", by="local")


async def test_each_job_has_its_own_parameters_and_they_are_told_in_order(system: System) -> None:
    store = Watched(system.store)
    ids = await create(system, store, DRAFT, 55)
    assert len(set(ids)) == 55
    found = await system.store.runs(cast(Any, ids))
    assert [found[cast(Any, job_id)].spec.params for job_id in ids] == [f'{{"n":{number}}}' for number in range(55)]


async def test_while_one_batch_is_written_the_next_is_on_its_way(system: System) -> None:
    store = Watched(system.store)
    await create(system, store, DRAFT, 55)
    assert (store.batches, store.most) == (6, bulk_create.AT_ONCE)


async def test_jobs_that_run_in_order_are_written_in_order(system: System) -> None:
    store = Watched(system.store)
    ids = await create(system, store, Draft(task="echo", allow_unknown_task=True, ordering_key="k"), 55)
    assert store.most == 1
    assert ids == sorted(ids)


async def test_an_interruption_tells_which_jobs_are_known_to_be_written(system: System) -> None:
    store = Watched(system.store, away_from=3)
    with pytest.raises(Interrupted) as told:
        await create(system, store, DRAFT, 100)
    assert store.batches <= 5, "no further batch is begun"
    written = [JobId(job_id.removeprefix("job_")) for job_id in told.value.written]
    assert len(written) == 30
    assert (await system.store.jobs(written)).keys() == set(written)
