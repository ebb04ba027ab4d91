"""Looking: those who ask at the same time share one read, and each sees what is theirs alone."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from horae.core.drafts import Draft
from horae.core.errors import NotFound
from horae.core.model import Job, JobId, RunId
from horae.jobs.params import Parameters
from horae.ports.store import Store
from horae.queries.jobs import JobQueries
from tests.engine.system import System
from tests.engine.test_jobs import jobs_of


class Counting:
    """A store that counts how often it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._store, name)


def queries_of(system: System, store: Counting) -> JobQueries:
    return JobQueries(
        store=cast(Store, store),
        blobs=system.store.blobs,
        parameters=Parameters(system.store.blobs),
        clock=system.clock,
    )


async def given_one_shots(system: System, count: int, owner: str = "local") -> list[Job]:
    draft = Draft(task="echo", allow_unknown_task=True)
    return [await jobs_of(system).create(draft, owner=owner, by=owner) for _ in range(count)]


async def test_jobs_that_are_asked_for_at_the_same_time_are_read_together(system: System) -> None:
    store = Counting(system.store)
    looking = queries_of(system, store)
    jobs = await given_one_shots(system, 20)
    found = await asyncio.gather(*(looking.job(job.id, owner="local") for job in [*jobs, *jobs]))
    assert [overview.job for overview in found] == [*jobs, *jobs]
    assert store.asked == {"last_runs": 1}


async def test_jobs_that_have_not_run_are_read_together_with_those_that_have(system: System) -> None:
    looking = queries_of(system, store := Counting(system.store))
    [due] = await given_one_shots(system, 1)
    later, recurring = [
        await jobs_of(system).create(draft, owner="local", by="local")
        for draft in (
            Draft(task="echo", allow_unknown_task=True, schedule="2100-01-01T00:00:00Z"),
            Draft(task="echo", allow_unknown_task=True, schedule="0 0 1 1 *"),
        )
    ]
    again = await jobs_of(system).run_now(due.id, None, owner="local", by="local")
    found = await asyncio.gather(*(looking.job(job.id, owner="local") for job in (due, later, recurring)))
    assert [overview.job for overview in found] == [due, later, recurring]
    assert [overview.last_run for overview in found] == [again, None, None]
    assert store.asked == {"jobs": 1, "last_runs": 1}


async def test_runs_that_are_asked_for_at_the_same_time_are_read_together(system: System) -> None:
    store = Counting(system.store)
    looking = queries_of(system, store)
    runs = [job.run for job in await given_one_shots(system, 20)]
    found = await asyncio.gather(*(looking.run(run.id, owner="local") for run in [*runs, *runs]))
    assert [run for run, _ in found] == [*runs, *runs]
    assert store.asked == {"runs": 1, "attempts": 1}


async def test_what_is_not_there_and_what_is_anothers_is_missing_for_its_asker_only(system: System) -> None:
    looking = queries_of(system, Counting(system.store))
    [mine] = await given_one_shots(system, 1)
    [theirs] = await given_one_shots(system, 1, owner="bob")
    nobodys = system.new_id()
    jobs = [looking.job(job_id, owner="local") for job_id in (mine.id, theirs.id, JobId(nobodys))]
    runs = [looking.run(run_id, owner="local") for run_id in (RunId(mine.id), RunId(theirs.id), RunId(nobodys))]
    answers = await asyncio.gather(*jobs, *runs, return_exceptions=True)
    assert [isinstance(answer, NotFound) for answer in answers] == [False, True, True] * 2
    assert (await looking.job(theirs.id, owner=None)).job == theirs
    with pytest.raises(NotFound):
        await looking.status(theirs.id, owner="local")
