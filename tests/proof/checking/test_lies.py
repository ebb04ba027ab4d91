"""Each lie that is planted in the tables of a real store is found, and called by its name."""

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
from tests.proof.checking.planting import LIES, Lie, PostgresGround, SqliteGround, Story, tell_story
from tests.proof.checking.reading import checked

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Told:
    """A story, and the file that it stands in."""

    file: Path
    story: Story
    now: datetime


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    file, clock = tmp_path_factory.mktemp("story") / "horae.db", ManualClock(START)
    store = SqliteStore(file, executor=InlineExecutor(durable=False), wall=clock.now)
    await store.open()
    story = await tell_story(store, clock)
    await store.close()
    return Told(file, story, clock.now())


@pytest.fixture
async def executor() -> InlineExecutor:
    return InlineExecutor(durable=False)


@pytest.fixture
async def store(told: Told, executor: InlineExecutor, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """The story once more, for lies."""
    shutil.copy(told.file, tmp_path / "horae.db")
    store = SqliteStore(tmp_path / "horae.db", executor=executor)
    await store.open()
    yield store
    await store.close()


async def test_the_true_story_is_believed(told: Told, store: SqliteStore) -> None:
    assert await checked(store, told.now) == []


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_a_lie_is_found(told: Told, store: SqliteStore, executor: InlineExecutor, lie: Lie) -> None:
    await lie.plant(SqliteGround(executor), told.story)
    found = await checked(store, told.now)
    assert lie.code in {violation.code for violation in found}, found


async def test_a_letter_that_fell_out_of_its_list_is_found(
    told: Told, store: SqliteStore, executor: InlineExecutor
) -> None:
    await SqliteGround(executor).delete("letters", {"id": told.story.broken.id})
    [found] = await checked(store, told.now)
    assert (found.code, found.subject) == (Code.NOT_A_DEAD_LETTER, f"run_{told.story.broken.id}")


async def test_lies_are_found_on_postgres_and_the_truth_is_believed() -> None:
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    async with scratch_schema(postgres_url()) as url, opened(url) as (store, connection):
        story = await tell_story(store, clock)
        assert await checked(store, clock.now()) == []
        ground = PostgresGround(connection)
        await ground.remember()
        for lie in LIES[::5]:  # `make acceptance` plants them all
            await lie.plant(ground, story)
            found = await checked(store, clock.now())
            assert lie.code in {violation.code for violation in found}, (lie.name, found)
            await ground.restore()
        await bring_back(connection, story.prompt.id)
        assert (Code.COMMITTED_TWICE, f"run_{story.prompt.id}") in await subjects(store)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[PostgresStore, asyncpg.Connection]]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    connection = await asyncpg.connect(url)
    yield store, connection
    await connection.close()
    await store.close()


async def bring_back(connection: asyncpg.Connection, run_id: str) -> None:
    """Have a run live again, although it has ended."""
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
