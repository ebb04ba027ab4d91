"""How jobs stand in PostgreSQL while runs are written for them: a cancel and a manual run never miss each other."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest

from horae.core.decisions.new_runs import manual_run
from horae.core.decisions.results import cancel
from horae.core.job_rules import job_of
from horae.core.model import JobId, JobStatus, Reason, Run
from horae.core.records import IdempotencyRecord
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.lookup import find_run
from horae.stores.common.apply import Named
from horae.stores.common.statements import load
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.codecs import columns
from horae.stores.postgres.connection.database import Address, Session
from horae.stores.postgres.guards import lock
from horae.stores.postgres.store import PostgresStore
from tests import acts
from tests.acts import NOBODY, JobChange
from tests.conformance.builders import (
    NOW,
    SECOND,
    a_backfill,
    claims_of,
    firing,
    given_node,
    new_id,
    one_shot,
    recurring,
)
from tests.postgres_server import migrated_schema, postgres_url

T = TypeVar("T")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with migrated_schema(postgres_url()) as address:
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


async def until_blocked(other: Any, task: asyncio.Task[Any]) -> None:
    """Until the task waits for what another connection has locked."""
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(10):
        while not await other.fetchval(blocked, other.get_server_pid()):
            assert not task.done()


async def created_beside(
    store: PostgresStore, url: str, run: Run, name: str, *arguments: object
) -> JobId | IdempotencyRecord:
    """What becomes of a new run while somebody else is at a statement that is not committed yet."""
    [answer] = await beside(acts.create(store, [run]), url, name, *arguments)
    return answer


async def beside(verb: Coroutine[Any, Any, T], url: str, name: str, *arguments: object) -> T:
    """The answer of a verb that has to wait until somebody else commits a statement."""
    other = await Address(url).connect()
    async with other.transaction():
        await other.fetch(load("postgres")[name], *arguments)
        waiting = asyncio.create_task(verb)
        await until_blocked(other, waiting)
    await other.close()
    return await waiting


async def test_a_manual_run_that_meets_the_cancel_of_its_job_is_not_written(store: PostgresStore, url: str) -> None:
    job = recurring(plan_at=None)
    await acts.create(store, [firing(job)])
    manual = manual_run(job, now=NOW, new_id=new_id)
    change = columns(rows.job, [replace(job, status=JobStatus.CANCELLED, revision=2)])

    assert await created_beside(store, url, manual, "put_jobs", *change) == NOBODY

    assert await find_run(store, manual.id, owner=None) is None


async def test_a_manual_run_that_meets_another_change_of_its_job_is_written(store: PostgresStore, url: str) -> None:
    job = recurring(plan_at=None)
    await acts.create(store, [firing(job)])
    manual = manual_run(job, now=NOW, new_id=new_id)
    change = columns(rows.job, [replace(job, status=JobStatus.PAUSED, revision=2)])

    assert await created_beside(store, url, manual, "put_jobs", *change) == job.id

    assert await find_run(store, manual.id, owner=None) == manual


async def test_a_manual_run_that_meets_the_end_of_its_one_shot_is_not_written(store: PostgresStore, url: str) -> None:
    once = [one_shot(), one_shot()]
    await acts.create(store, once)
    await store.settle([cancel(once[1], NOW)])  # so that the day is there
    manual = manual_run(job_of(once[0]), now=NOW, new_id=new_id)
    ends = rows.run_ends([cancel(once[0], NOW)])

    assert await created_beside(store, url, manual, "end_runs", False, ends, 1, True) == NOBODY

    assert await find_run(store, manual.id, owner=None) is None


async def test_a_manual_run_that_meets_a_stop_of_its_one_shot_is_not_written(store: PostgresStore, url: str) -> None:
    once, node = one_shot(), await given_node(store)
    await acts.create(store, [once])
    assert len((await claims_of(store, node)).runs) == 1
    manual = manual_run(job_of(once), now=NOW, new_id=new_id)

    assert await created_beside(store, url, manual, "set_stops", [once.id], [Reason.CANCELLED]) == NOBODY

    assert await find_run(store, manual.id, owner=None) is None


async def test_a_backfill_that_meets_the_cancel_of_its_job_does_not_begin(store: PostgresStore, url: str) -> None:
    job = recurring(plan_at=None)
    await acts.create(store, [firing(job)])
    change = columns(rows.job, [replace(job, status=JobStatus.CANCELLED, revision=2)])

    assert await beside(acts.backfill(store, a_backfill(job)), url, "put_jobs", *change) is False

    assert (await store.plannable(range(64), now=NOW, limit=10)).backfills == []


@pytest.mark.parametrize("recurs", [True, False])
async def test_a_cancel_waits_for_a_manual_run_that_is_being_written(
    store: PostgresStore, url: str, recurs: bool
) -> None:
    job, once, node = recurring(plan_at=None), one_shot(), await given_node(store)
    await acts.create(store, [firing(job), once])
    assert len((await claims_of(store, node)).runs) == 1
    change = JobChange(job=replace(job, status=JobStatus.CANCELLED, revision=2), expected=job.revision)
    other = await Address(url).connect()

    async def cancelled() -> bool:
        if recurs:
            return await acts.change(store, change) is not None
        return await acts.request_stop(store, [once.id], Reason.CANCELLED) == [node]

    async with other.transaction():
        locked = await lock(Session(other), Named(open_jobs={job.id, once.job_id}))
        assert locked.found.cancelled == set()
        cancelling = asyncio.create_task(cancelled())
        await until_blocked(other, cancelling)
    await other.close()
    assert await cancelling


async def test_what_claims_pass_over_because_of_a_manual_run_is_told_of_again(store: PostgresStore) -> None:
    told: list[Signal] = []
    once = one_shot(NOW - SECOND)
    await acts.create(store, [once])
    store.subscribe(told.append)

    await acts.create(store, [manual_run(job_of(once), now=NOW, new_id=new_id)])

    assert NOW - SECOND in {signal.at for signal in told if signal.kind is Kind.DUE}
