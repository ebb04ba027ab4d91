"""The stores that the conformance suite is run against: each test gets a database of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from horae.ports.store import Store
from horae.stores.dynamodb.store import DynamoStore
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.store import SqliteStore
from tests.dynamodb_tables import fresh_tables
from tests.engines.servers import ministack_url
from tests.postgres_server import migrated_schema, postgres_url

STORES = ("sqlite", "postgres", "dynamodb")

Connect = Callable[[], Awaitable[Store]]


@pytest.fixture(params=STORES)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    """Opens one more store on the database of this test, as another process would."""
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            url = await stack.enter_async_context(migrated_schema(postgres_url()))

        if request.param == "dynamodb":
            url = await stack.enter_async_context(fresh_tables(ministack_url()))

        async def opened() -> Store:
            store: Store = SqliteStore(tmp_path / "horae.db")
            if request.param == "postgres":
                store = PostgresStore(url)
            if request.param == "dynamodb":
                store = DynamoStore(url)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(connect: Connect) -> Store:
    """The store of this test."""
    return await connect()
