"""Which schema the tables are in: `horae` in a database that other programs use too, or where they already were."""

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from horae.adapters import opened_store
from horae.core.errors import Misconfigured
from horae.core.signals import Kind, Signal
from horae.lookup import find_run
from horae.ports.store import Store
from horae.stores.postgres.connection.database import Address
from horae.stores.postgres.store import PostgresStore
from tests import acts
from tests.conformance.builders import NOW, claims_of, given_node, ids, one_shot
from tests.conformance.test_postgres import until
from tests.postgres_server import postgres_url

WITH_TABLES = "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'runs' ORDER BY 1"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The address of a database of its own, with tables of an application whose names are also ours."""
    name = f"test_{secrets.token_hex(6)}"
    await execute(postgres_url(), f"CREATE DATABASE {name}")
    address = urlsplit(postgres_url())._replace(path=f"/{name}").geturl()
    await execute(address, "CREATE TABLE events (id serial, what text); CREATE TABLE jobs (title text)")
    yield address
    await execute(postgres_url(), f"DROP DATABASE {name} WITH (FORCE)")


async def execute(url: str, script: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(script)
    finally:
        await connection.close()


async def schemas(url: str) -> list[str]:
    """The schemas that have tables of ours."""
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(WITH_TABLES)]
    finally:
        await connection.close()


async def assert_works(store: Store) -> None:
    run, node = one_shot(), await given_node(store)
    await acts.create(store, [run])
    assert ids((await claims_of(store, node)).runs) == [run.id]


async def test_tables_of_an_application_with_the_same_names_are_no_problem(url: str) -> None:
    await PostgresStore(url).migrate()
    assert await schemas(url) == ["horae"]
    async with opened_store(url) as store:
        await assert_works(store)
    await execute(url, "INSERT INTO events (what) VALUES ('theirs'); INSERT INTO jobs VALUES ('theirs')")


async def test_a_store_of_a_release_without_the_schema_goes_on_where_it_is(url: str) -> None:
    await execute(url, "DROP TABLE events, jobs")
    await PostgresStore(f"{url}&search_path=public").migrate()
    assert (await PostgresStore(url).status()).problem is None
    assert await PostgresStore(url).migrate() == []
    async with opened_store(url) as store, opened_store(f"{url}&search_path=public") as as_before:
        run = one_shot()
        await acts.create(store, [run])
        assert await find_run(as_before, run.id, owner=None) == run
    assert await schemas(url) == ["public"]


async def test_a_table_of_versions_of_another_program_is_not_taken_for_ours(url: str) -> None:
    await execute(url, "CREATE TABLE schema_versions (version integer, applied_at timestamptz)")
    await execute(url, "INSERT INTO schema_versions VALUES (1000, now())")
    await PostgresStore(url).migrate()
    async with opened_store(url) as store:
        await assert_works(store)
    assert await schemas(url) == ["horae"]


@pytest.mark.parametrize("said", ["ALTER DATABASE {database} SET search_path = theirs", "in the address"])
async def test_a_search_path_that_somebody_set_decides(url: str, said: str) -> None:
    await execute(url, "CREATE SCHEMA theirs")
    address = f"{url}&options={quote('-c search_path=theirs')}"
    if said != "in the address":
        await execute(url, said.format(database=urlsplit(url).path[1:]))
        address = url
    await PostgresStore(address).migrate()
    assert await schemas(url) == ["theirs"]
    async with opened_store(address) as store:
        await assert_works(store)


async def test_tables_that_are_there_are_found_whatever_search_path_a_database_gets_later(url: str) -> None:
    await PostgresStore(url).migrate()
    await execute(url, "CREATE SCHEMA theirs")
    await execute(url, f"ALTER DATABASE {urlsplit(url).path[1:]} SET search_path = theirs")
    assert await PostgresStore(url).migrate() == []
    async with opened_store(url) as store:
        await assert_works(store)


async def test_a_table_that_is_in_the_way_is_named_with_what_to_do(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"relation \"jobs\" already exists.*search_path=horae in HORAE_STORE"):
        await PostgresStore(f"{url}&search_path=public").migrate()


async def test_a_role_that_may_not_create_a_schema_is_told_who_can(url: str) -> None:
    role = f"role_{secrets.token_hex(6)}"
    await execute(url, f"CREATE ROLE {role} LOGIN")
    theirs = urlsplit(url)._replace(netloc=f"{role}@").geturl()
    try:
        with pytest.raises(Misconfigured, match="CREATE SCHEMA horae AUTHORIZATION"):
            await PostgresStore(theirs).migrate()
        await execute(url, f"CREATE SCHEMA horae AUTHORIZATION {role}")
        assert await PostgresStore(theirs).migrate()
        async with opened_store(theirs) as store:
            await assert_works(store)
    finally:
        await execute(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_name_that_is_too_long_for_a_channel_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="too long"):
        await PostgresStore(f"{url}&search_path={'s' * 58}").migrate()


# --- poolers


@pytest.mark.parametrize("path", [None, "theirs", '"o\'dd one"'])
async def test_behind_a_pooler_the_search_path_ends_with_each_transaction(url: str, path: str | None) -> None:
    pooled = f"{url}&pooler=1" + ("" if path is None else f"&search_path={quote(path)}")
    await PostgresStore(pooled).migrate()
    assert await schemas(url) == [(path or "horae").strip('"')]
    async with opened_store(pooled) as store:
        await assert_works(store)

    address = Address(pooled)
    connection = await address.connect()
    try:
        session = address.session(connection)
        assert await session.value("current_schema") == (path or "horae").strip('"')
        async with session.transaction():
            assert len(await session.rows("has_versions")) == 1
        assert await connection.fetchval("SHOW search_path") == '"$user", public', "the next client gets it like that"
    finally:
        await connection.close()


async def test_behind_a_pooler_a_store_goes_on_where_it_is(url: str) -> None:
    await execute(url, "DROP TABLE events, jobs")
    await PostgresStore(f"{url}&search_path=public").migrate()
    async with opened_store(f"{url}&pooler=1") as store:
        await assert_works(store)
    assert await schemas(url) == ["public"]


# --- transactions of the application, and signals


@pytest.mark.parametrize("mode", ["", "&pooler=1"])
async def test_a_transaction_of_the_application_finds_the_tables(url: str, mode: str) -> None:
    await PostgresStore(url).migrate()
    async with opened_store(f"{url}{mode}") as store:
        run = one_shot(datetime.now(UTC))
        enlistment = await store.enlistment([run])
        caller = await asyncpg.connect(url)
        try:
            async with caller.transaction():
                await caller.execute("INSERT INTO events (what) VALUES ('ordered')")
                await caller.execute(enlistment.sql("$1"), enlistment.argument)
            assert await caller.fetchval("SELECT count(*) FROM events") == 1
        finally:
            await caller.close()
        assert await find_run(store, run.id, owner=None) == run


async def test_two_schemas_hear_nothing_of_each_other(url: str) -> None:
    other = f"{url}&search_path={'s' * 57}"
    for address in (url, other, f"{other[:-1]}t"):
        await PostgresStore(address).migrate()
    heard: list[Signal] = []
    async with opened_store(url) as here, opened_store(other) as there, opened_store(f"{other[:-1]}t") as elsewhere:
        here.subscribe(heard.append)
        elsewhere.subscribe(heard.append)
        run = one_shot(NOW)
        told: list[Signal] = []
        there.subscribe(told.append)
        await acts.create(there, [run])
        last = one_shot(NOW.replace(year=2027))
        async with opened_store(url) as again, opened_store(f"{other[:-1]}t") as once_more:
            await acts.create(again, [last])
            await acts.create(once_more, [last])
            mark = Signal(kind=Kind.DUE, at=last.wake_at)
            await until(lambda: heard.count(mark) == 2)
        assert set(heard) == {mark}
        assert Signal(kind=Kind.DUE, at=run.wake_at) in told
