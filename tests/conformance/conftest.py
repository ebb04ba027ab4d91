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
from tests.engines.provisioned import dynamodb_local_url
from tests.engines.servers import ministack_url
from tests.postgres_server import migrated_schema, postgres_url

STORES = ("sqlite", "postgres", "dynamodb", "dynamodb-local")
DYNAMODB = {"dynamodb": ministack_url, "dynamodb-local": dynamodb_local_url}
LARGE = (  # with so many rows that an emulator of DynamoDB takes longer than all other tests of a file
    "test_a_bound_changes_the_pages_and_not_what_is_found",
    "test_any_sequence_of_verbs_leaves_what_the_model_says",
    "test_large_batches_are_taken",
    "test_large_batches_with_records_are_taken",
    "test_of_very_many_due_lanes_each_gets_its_turn",
    "test_owners_who_never_ran_together_are_found_whatever_waits_elsewhere",
    "test_thousands_of_lanes_that_are_due_do_not_make_claims_slow",
)
BRIEFLY = ("test_store_life",)  # there in `make test`, too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what takes long on servers of DynamoDB for `make acceptance`: most on DynamoDB Local, and large tests."""
    for item in items:
        store = getattr(item, "callspec", None)
        if store is None or item.path.parent != Path(__file__).parent:
            continue
        name = store.params.get("connect")
        large = name in DYNAMODB and getattr(item, "originalname", "") in LARGE
        if large or (name == "dynamodb-local" and item.path.stem not in BRIEFLY):
            item.add_marker(pytest.mark.acceptance)


Connect = Callable[[], Awaitable[Store]]


@pytest.fixture(params=STORES)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    """Opens one more store on the database of this test, as another process would.

    A test that a store lacks an ability for says so: `@pytest.mark.lacks("dynamodb", reason="...")`.
    """
    for mark in request.node.iter_markers("lacks"):
        if any(request.param.startswith(store) for store in mark.args):
            pytest.skip(mark.kwargs["reason"])
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            url = await stack.enter_async_context(migrated_schema(postgres_url()))

        if request.param in DYNAMODB:
            url = await stack.enter_async_context(fresh_tables(DYNAMODB[request.param]()))

        async def opened() -> Store:
            store: Store = SqliteStore(tmp_path / "horae.db")
            if request.param == "postgres":
                store = PostgresStore(url)
            if request.param in DYNAMODB:
                store = DynamoStore(url)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(connect: Connect) -> Store:
    """The store of this test."""
    return await connect()
