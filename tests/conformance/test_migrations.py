"""Migrations beside nodes that serve: who may use which schema, short locks, batches, indexes, one at a time."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from horae.core.errors import Misconfigured, Unavailable
from horae.ports.database import SchemaStatus
from horae.ports.store import Store
from horae.stores.common import schema
from horae.stores.common.migrations import all_migrations, read_migration
from horae.stores.postgres.connection import database
from horae.stores.postgres.connection.database import Address, Collision, door
from horae.stores.postgres.migrations import apply
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.migrations import apply as sqlite_apply
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.conformance.builders import MINUTE, NOW, claims_of, given_node, ids, one_shot
from tests.postgres_server import postgres_url, scratch_schema
from tests.system.releases import PREVIOUS_VERSIONS

NEXT = 900  # numbers of migrations of later releases
ADD = "ALTER TABLE runs ADD COLUMN later integer;\n"
FILL = "-- way: batches\nUPDATE runs SET later = 1 WHERE id IN (SELECT id FROM runs WHERE later IS NULL LIMIT 30);\n"

Open = Callable[[], Store]
Release = Callable[..., None]


@pytest.fixture(params=["sqlite", "postgres"])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make(kind: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Makes stores on one database, as several processes would."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(scratch_schema(postgres_url())) if kind == "postgres" else ""
        yield lambda: PostgresStore(url) if kind == "postgres" else SqliteStore(tmp_path / "horae.db")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Turns this code into that of a later release, which has these migrations as well."""

    def released(*scripts: str) -> None:
        later = tuple(read_migration(NEXT + place, script) for place, script in enumerate(scripts))
        monkeypatch.setattr(schema, "all_migrations", lambda dialect: (*all_migrations(dialect), *later))

    return released


async def opened(stack: AsyncExitStack, store: Store) -> Store:
    await store.open()
    stack.push_async_callback(store.close)
    return store


async def works(store: Store) -> bool:
    run, node = one_shot(NOW - MINUTE), await given_node(store)  # before thousands of others that may wait
    await acts.create(store, [run])
    return run.id in ids((await claims_of(store, node)).runs)


# --- who may use which schema


async def test_a_node_works_before_and_after_a_migration_that_expands(make: Open, release: Release) -> None:
    await make().migrate()
    async with AsyncExitStack() as stack:
        old = await opened(stack, make())
        release(ADD)
        assert await make().migrate() == [NEXT]
        assert await works(old)
        release()
        assert await works(await opened(stack, make())), "it can also be started again"
        assert await make().migrate() == [], "and migrate, as every pod does first"
        assert (await make().status()).version == NEXT


async def test_a_node_that_is_too_old_for_a_migration_that_contracts_is_refused(make: Open, release: Release) -> None:
    await make().migrate()
    release(ADD, f"-- contract: since {NEXT}\nALTER TABLE runs DROP COLUMN later;\n")
    assert await make().migrate() == [NEXT, NEXT + 1]
    release(ADD)
    await make().status()
    async with AsyncExitStack() as stack:
        assert await works(await opened(stack, make())), "the release before is still served"
    release()
    for refused in (make().open(), make().migrate()):
        with pytest.raises(Misconfigured, match=f"needs a Horae of version {NEXT} or later.*upgrade Horae"):
            await refused


async def test_code_of_the_release_before_reads_that_the_schema_is_its_own(make: Open, kind: str) -> None:
    """It knows one table of versions alone, and takes only the version that it expects."""
    await make().migrate()
    status = await make().status()
    assert status == SchemaStatus(version=status.expected, expected=status.expected, oldest=PREVIOUS_VERSIONS[kind])


@pytest.mark.parametrize(
    ("version", "oldest", "words", "usable"),
    [
        (12, 12, "up to date", True),
        (11, 11, "run `horae db migrate`", False),
        (20, 12, r"of a later release, which this one \(12\) can use as well", True),
        (20, 13, "upgrade Horae", False),
    ],
)
def test_the_status_says_in_words_what_to_make_of_it(version: int, oldest: int, words: str, usable: bool) -> None:
    status = SchemaStatus(version=version, expected=12, oldest=oldest)
    assert re.search(words, status.verdict)
    assert (status.problem is None) == usable


# --- beside nodes that serve


async def test_rows_are_changed_in_batches(make: Open, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (apply, sqlite_apply):
        monkeypatch.setattr(module, "TELL_EVERY", -1.0)
    lines: list[str] = []
    await make().migrate()
    async with AsyncExitStack() as stack:
        store = await opened(stack, make())
        await acts.create(store, [one_shot() for _ in range(100)])
        release(ADD, FILL)
        assert await make().migrate(lines.append) == [NEXT, NEXT + 1]
        assert await works(store)
    assert list(dict.fromkeys(lines)) == [f"migration {NEXT + 1}: {rows} rows so far" for rows in (30, 60, 90, 100)]


async def test_a_node_writes_while_a_migration_is_under_way(make: Open, release: Release, kind: str) -> None:
    await make().migrate()
    async with AsyncExitStack() as stack:
        store = await opened(stack, make())
        await acts.create(store, [one_shot() for _ in range(500)])
        release(ADD, FILL)
        migrating = asyncio.create_task(make().migrate())
        longest, writes = 0.0, 0
        while not migrating.done() or writes == 0:
            began_at = time.monotonic()
            await acts.create(store, [one_shot()])
            longest, writes = max(longest, time.monotonic() - began_at), writes + 1
            await asyncio.sleep(0.05)  # it ends when it finds no row, and these are some
        assert await migrating == [NEXT, NEXT + 1]
        assert longest < 5, "of a node's patience of ten seconds"


async def test_a_migration_that_fails_leaves_the_version_as_it_was(make: Open, release: Release) -> None:
    await make().migrate()
    before = await make().status()
    release(f"{ADD}ALTER TABLE runs ADD COLUMN later integer;\n")
    with pytest.raises(Exception, match="later"):
        await make().migrate()
    assert (await make().status()).version == before.version
    release(ADD)
    assert await make().migrate() == [NEXT]


# --- PostgreSQL alone


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with scratch_schema(postgres_url()) as address:
        await PostgresStore(address).migrate()
        yield address


@asynccontextmanager
async def forgotten_transaction(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection with a transaction that has read runs, and is not ended."""
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN; SELECT count(*) FROM runs")
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_long_transaction_delays_the_migration_and_nobody_else(url: str, release: Release) -> None:
    lines: list[str] = []
    async with AsyncExitStack() as stack:
        store = await opened(stack, PostgresStore(url))
        release(ADD)
        forgotten = await stack.enter_async_context(forgotten_transaction(url))
        migrating = asyncio.create_task(PostgresStore(url).migrate(lines.append))
        async with asyncio.timeout(20):
            while len(lines) < 3:
                began_at = time.monotonic()
                await acts.create(store, [one_shot()])
                assert time.monotonic() - began_at < 4, "of the five seconds that a node waits for a lock"
        assert "waits for a transaction that holds a lock" in lines[0]
        await forgotten.execute("COMMIT")
        async with asyncio.timeout(20):
            assert await migrating == [NEXT]
        assert await works(store)


async def test_a_statement_whose_answer_a_migration_changed_collided_and_can_be_tried_again(url: str) -> None:
    connection, other = await Address(url).connect(), await asyncpg.connect(url)
    try:
        await connection.fetch("SELECT * FROM lanes")
        await other.execute("ALTER TABLE lanes ADD COLUMN later integer")
        with pytest.raises(Collision), door():
            async with connection.transaction():
                await connection.fetch("SELECT * FROM lanes")
        async with connection.transaction():
            assert await connection.fetch("SELECT * FROM lanes") == []
    finally:
        await connection.close()
        await other.close()


async def test_a_migration_may_take_longer_than_any_command_of_a_node(
    url: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 1.0)
    release(f"{ADD}SELECT pg_sleep(1.5);\n")
    assert await PostgresStore(url).migrate() == [NEXT]


async def test_an_index_is_built_without_a_lock_also_if_a_build_was_broken_off(url: str, release: Release) -> None:
    release("-- way: concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS runs_name ON {schema}.runs (name);\n")
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE INDEX runs_name ON runs (name)")
    await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'runs_name'::regclass")
    lines: list[str] = []
    assert await PostgresStore(url).migrate(lines.append) == [NEXT]
    assert lines == [f"migration {NEXT}: building the index runs_name"]
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'runs_name'::regclass"
    assert await connection.fetchval(valid)
    await connection.close()


async def test_an_index_of_a_partitioned_table_is_built_part_by_part(url: str, release: Release) -> None:
    release("-- way: concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS by_name ON {schema}.history (name);\n")
    connection = await asyncpg.connect(url)
    for day in (1, 2):
        await connection.execute("SELECT ensure_history_day($1)", NOW.date().replace(day=day))
    assert await PostgresStore(url).migrate() == [NEXT]
    await connection.execute("SELECT ensure_history_day($1)", NOW.date().replace(day=3))
    found = await connection.fetch(
        "SELECT indrelid::regclass::text, indisvalid FROM pg_index"
        " WHERE indexrelid = 'by_name'::regclass"
        " OR indexrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'by_name'::regclass) ORDER BY 1"
    )
    await connection.close()
    days = [f"history_202603{day:02}" for day in (1, 2, 3)]
    assert [tuple(row) for row in found] == [(table, True) for table in ("history", *days)]


async def test_of_several_that_migrate_one_does_it_and_the_others_say_that_they_wait(
    url: str, release: Release
) -> None:
    release(f"{ADD}SELECT pg_sleep(0.5);\n")
    lines: list[str] = []
    done = await asyncio.gather(*(PostgresStore(url).migrate(lines.append) for _ in range(3)))
    assert sorted(done) == [[], [], [NEXT]]
    assert "another process migrates the schema: waiting for it" in lines


async def test_an_index_is_built_while_others_wait_for_their_turn_to_migrate(url: str, release: Release) -> None:
    release(
        f"{ADD}SELECT pg_sleep(0.5);\n",
        "-- way: concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS runs_name ON {schema}.runs (name);\n",
    )
    lines: list[str] = []
    async with asyncio.timeout(30):
        done = await asyncio.gather(*(PostgresStore(url).migrate(lines.append) for _ in range(3)))
    assert sorted(done) == [[], [], [NEXT, NEXT + 1]]
    assert "another process migrates the schema: waiting for it" in lines


async def test_a_lock_that_never_comes_free_ends_the_migration_with_what_to_do(
    url: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "PATIENCE", 0.1)
    release(ADD)
    async with forgotten_transaction(url):
        with pytest.raises(Unavailable, match="end the transactions that pg_stat_activity shows"):
            await PostgresStore(url).migrate()
