"""Verification finds jobs that are missing, live, duplicated or failed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.core.decisions.results import Failure, Settled, fail, start, succeed
from horae.core.model import NodeId, Overlap, Run
from horae.ports.store import ClaimRequest, Store
from horae.proof.bench.load import CronLoad, JobWriter
from horae.proof.bench.tasks import app, once, slot
from horae.proof.bench.verify import Verification, all_slots_fired
from horae.proof.checking import Tolerance
from horae.sdk.connection import Connection
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.clocks import ManualClock
from tests.conformance.builders import OOPS, a_node

NOW = datetime.now(UTC)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    store = SqliteStore(tmp_path / "bench.db")
    await store.open()
    yield Connection.over(store, ManualClock(NOW), app.registry)
    await store.close()


async def problems_of(connection: Connection, submitted: int) -> list[str]:
    verification = Verification(connection.store, now=NOW, tolerance=Tolerance())
    await verification.once_each(submitted, lambda read: None)
    return verification.problems


async def given_jobs(connection: Connection, *numbers: int) -> list[Run]:
    """Jobs with these numbers, held by a node."""
    await JobWriter(connection).create_due_at(numbers, [NOW] * len(numbers))
    return await claimed(connection.store, once.name)


async def claimed(store: Store, task: str, until: datetime = NOW) -> list[Run]:
    node = a_node(tasks={task: "{}"}, beat_at=NOW)
    await acts.register(store, node)
    request = ClaimRequest(node=NodeId(node.id), queues=(), tasks=(task,), now=NOW, until=until)
    return list((await store.claim(request)).runs)


def succeeded(run: Run, at: datetime = NOW) -> Settled:
    return succeed(start(run, at), None, at)


async def test_jobs_that_all_ended_well_are_no_problem(connection: Connection) -> None:
    runs = await given_jobs(connection, 0, 1, 2)
    assert await connection.store.settle([succeeded(run) for run in runs]) == [True] * 3
    assert await problems_of(connection, 3) == []


async def test_a_backlog_is_no_problem(connection: Connection) -> None:
    await JobWriter(connection).store_backlog(10, lambda stored: None)
    await connection.store.settle([succeeded(run) for run in await given_jobs(connection, 0)])
    assert await problems_of(connection, 1) == []


async def test_a_job_that_is_not_there_is_missed(connection: Connection) -> None:
    await connection.store.settle([succeeded(run) for run in await given_jobs(connection, 0, 2)])
    assert await problems_of(connection, 3) == [
        "the store has 2 ended jobs, not 3",
        "1 jobs have no ended run, or several",
    ]


async def test_a_job_that_is_still_alive_is_told(connection: Connection) -> None:
    runs = await given_jobs(connection, 0, 1)
    await connection.store.settle([succeeded(runs[0])])
    assert "some runs have not ended" in await problems_of(connection, 2)


async def test_one_job_twice_does_not_stand_for_two(connection: Connection) -> None:
    await connection.store.settle([succeeded(run) for run in await given_jobs(connection, 0, 0)])
    assert await problems_of(connection, 2) == ["2 jobs have no ended run, or several"]


async def test_a_job_that_failed_is_told(connection: Connection) -> None:
    one, *others = await given_jobs(connection, 0, 1, 2)
    failure = Failure(error=OOPS, fatal=True)
    failed = [fail(start(other, NOW), failure, NOW, 0.0) for other in others]
    await connection.store.settle([succeeded(one), *failed])
    found = await problems_of(connection, 3)
    assert found[0] == "2 runs have attempts that did not succeed"
    assert found[-1] == "not all jobs succeeded: 2 failed, 1 succeeded"


async def test_a_start_that_the_store_knows_to_be_early_is_told(connection: Connection) -> None:
    runs = await given_jobs(connection, 0)
    early = start(runs[0], NOW - timedelta(milliseconds=5))
    await connection.store.settle([succeed(early, None, NOW)])
    assert [problem.partition(":")[0] for problem in await problems_of(connection, 1)] == ["early_start"]


# --- slots


async def given_recurring(connection: Connection, *, jobs: int = 2, seconds: int = 3) -> CronLoad:
    load = CronLoad(JobWriter(connection), rate=jobs, seconds=seconds, overlap=Overlap.ALLOW)
    await load.submit()
    return load


async def run_slots(connection: Connection, load: CronLoad, *, but: int = 0) -> None:
    """Let the runs of the time succeed, but for the last so many, each when it is due."""
    runs = sorted(await claimed(connection.store, slot.name, until=load.end_at), key=lambda run: run.due_at)
    timely = [run for run in runs if run.due_at < load.end_at]
    ended = timely[: len(timely) - but]
    assert all(await connection.store.settle([succeeded(run, run.due_at) for run in ended]))


async def test_slots_that_all_ran_are_accounted_for(connection: Connection) -> None:
    load = await given_recurring(connection)
    await run_slots(connection, load)
    verification = Verification(connection.store, now=load.end_at, tolerance=Tolerance())
    slots = await verification.slots(load, lambda read: None)
    assert (slots.expected, slots.run, slots.skipped, slots.missing) == (6, 6, 0, 0)
    assert verification.problems == []


async def test_a_slot_that_did_not_run_is_missing(connection: Connection) -> None:
    load = await given_recurring(connection)
    await run_slots(connection, load, but=1)
    verification = Verification(connection.store, now=load.end_at, tolerance=Tolerance())
    slots = await verification.slots(load, lambda read: None)
    assert slots.missing == 1
    assert verification.problems == ["some runs have not ended", "1 slots are not accounted for"]


async def test_slots_are_planned_when_every_job_fires_next_after_them(connection: Connection) -> None:
    load = await given_recurring(connection)
    assert await all_slots_fired(connection.store, load.job_ids, to=load.end_at)
    assert not await all_slots_fired(connection.store, load.job_ids, to=load.end_at + timedelta(hours=1))
