"""The API in process over a real store (SQLite in every run, PostgreSQL at full size), with a clock and a worker
that move by hand."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.core.ids import Ids
from horae.core.model import NodeId
from horae.ports.store import Store
from horae.stores.dynamodb.store import DynamoStore
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.store import SqliteStore
from tests.api.harness import START, Api, Hand, services_over
from tests.clocks import ManualClock
from tests.dynamodb_tables import fresh_tables
from tests.engines.servers import ministack_url
from tests.postgres_server import postgres_url, scratch_schema


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


OTHERS = [pytest.param(name, marks=pytest.mark.acceptance) for name in ("postgres", "dynamodb")]


@pytest.fixture(params=["sqlite", *OTHERS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        sqlite = SqliteStore(tmp_path / "horae.db")
        await sqlite.open()
        yield sqlite
        await sqlite.close()
        return
    if request.param == "dynamodb":
        async with fresh_tables(ministack_url()) as address:
            dynamodb = DynamoStore(address)
            await dynamodb.open()
            yield dynamodb
            await dynamodb.close()
        return
    async with scratch_schema(postgres_url()) as url:
        postgres = PostgresStore(url)
        await postgres.migrate()
        await postgres.open()
        yield postgres
        await postgres.close()


@pytest.fixture
def services(store: Store, clock: ManualClock) -> Services:
    return services_over(store, clock)


@pytest.fixture
async def hand(store: Store, clock: ManualClock) -> Hand:
    """A worker that has joined."""
    hand = Hand(store, clock, NodeId(Ids()()))
    await hand.join()
    return hand


@pytest.fixture
async def api(services: Services, store: Store, clock: ManualClock, hand: Hand) -> AsyncIterator[Api]:
    transport = httpx2.ASGITransport(create_app(services), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Api(client, clock, store, services, hand)


@pytest.fixture
def unready(services: Services) -> Services:
    """A node without a valid lease."""
    return replace(services, ready=lambda: False)
