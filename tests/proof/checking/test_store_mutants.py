"""Each violation that is planted in the tables of a real store is found and reported with its code."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from horae.proof.checking import Checker, Code
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.postgres_server import postgres_url, scratch_schema
from tests.proof.checking.store_mutants import (
    STORE_MUTANTS,
    PostgresTables,
    SampleHistory,
    SqliteTables,
    StoreMutant,
    create_sample_history,
)
from tests.proof.checking.whole_store import checked, found_in

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The sample history and its file."""

    file: Path
    sample: SampleHistory
    now: datetime


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredHistory:
    file, clock = tmp_path_factory.mktemp("story") / "horae.db", ManualClock(START)
    store = SqliteStore(file, executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    sample = await create_sample_history(store, clock)
    await store.close()
    return StoredHistory(file, sample, clock.now())


@pytest.fixture
async def executor() -> InlineExecutor:
    return InlineExecutor(durable=False)


@pytest.fixture
async def store(stored: StoredHistory, executor: InlineExecutor, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A copy of the sample history, to be changed."""
    shutil.copy(stored.file, tmp_path / "horae.db")
    store = SqliteStore(tmp_path / "horae.db", executor=executor)
    await store.open()
    yield store
    await store.close()


async def test_an_unchanged_store_is_clean(stored: StoredHistory, store: SqliteStore) -> None:
    assert await checked(store, stored.now) == []


@pytest.mark.parametrize("mutant", STORE_MUTANTS, ids=lambda mutant: mutant.name)
async def test_every_planted_violation_is_found(
    stored: StoredHistory, store: SqliteStore, executor: InlineExecutor, mutant: StoreMutant
) -> None:
    await mutant.plant(SqliteTables(executor), stored.sample)
    found = await checked(store, stored.now)
    assert mutant.code in {violation.code for violation in found}, found


async def test_a_letter_that_fell_out_of_its_list_is_found(
    stored: StoredHistory, store: SqliteStore, executor: InlineExecutor
) -> None:
    await SqliteTables(executor).delete("letters", {"id": stored.sample.broken.id})
    [found] = await checked(store, stored.now)
    assert (found.code, found.subject) == (Code.NOT_A_DEAD_LETTER, f"run_{stored.sample.broken.id}")


async def test_a_job_that_is_gone_from_its_table_is_found(
    stored: StoredHistory, store: SqliteStore, executor: InlineExecutor
) -> None:
    await SqliteTables(executor).delete("jobs", {"id": stored.sample.patient.id})
    found = await found_in(store, stored.now)
    assert {violation.code for violation in found} == {Code.JOB_MISSING}


async def test_planted_violations_are_found_on_postgres() -> None:
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    async with scratch_schema(postgres_url()) as url, opened(url) as (store, connection):
        sample = await create_sample_history(store, clock)
        assert await checked(store, clock.now()) == []
        tables = PostgresTables(connection)
        await tables.remember()
        for mutant in STORE_MUTANTS[::5]:  # `make acceptance` plants them all
            await mutant.plant(tables, sample)
            found = await checked(store, clock.now())
            assert mutant.code in {violation.code for violation in found}, (mutant.name, found)
            await tables.restore()
        await revive(connection, sample.prompt.id)
        assert (Code.COMMITTED_TWICE, f"run_{sample.prompt.id}") in await subjects(store)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[PostgresStore, asyncpg.Connection]]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    connection = await asyncpg.connect(url)
    yield store, connection
    await connection.close()
    await store.close()


async def revive(connection: asyncpg.Connection, run_id: str) -> None:
    """Insert a live copy of a run that has ended."""
    columns = (
        "id, job_id, owner, created_by, task, params, queue, priority, policy, schedule, trigger, slot, due_at,"
        " wake_at, paused, revision, created_at, shelf"
    )
    await connection.execute(
        f"INSERT INTO runs ({columns}, lane) SELECT {columns}, (SELECT min(id) FROM lanes) FROM history WHERE id = $1",
        run_id,
    )


async def subjects(store: PostgresStore) -> set[tuple[Code, str]]:
    return {(found.code, found.subject) async for found in Checker(store, pause=0).violations()}
