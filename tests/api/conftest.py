"""The API in process over a real SQLite store, with a clock and a worker that move by hand."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from horae.api.app import create_app
from horae.api.context import Services
from horae.clock import ManualClock
from horae.core.model import NodeId
from horae.metrics import Metrics
from horae.services.ids import Ids
from horae.stores.sqlite import SqliteStore
from horae.tasks.builtin import builtin_tasks
from tests.api.harness import START, Api, Hand


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "horae.db")
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def services(store: SqliteStore, clock: ManualClock) -> Services:
    registry = builtin_tasks()
    return Services.over(
        store,
        store.blobs,
        clock,
        Metrics(),
        new_id=Ids(wall=lambda: clock.now().timestamp()),
        horizon=timedelta(seconds=30),
        task_defaults=registry.get,
        check_params=registry.check,
        ready=lambda: True,
    )


@pytest.fixture
async def api(services: Services, store: SqliteStore, clock: ManualClock) -> AsyncIterator[Api]:
    transport = httpx2.ASGITransport(create_app(services), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        hand = Hand(store, clock, NodeId(Ids()()))
        await hand.join()
        yield Api(client, clock, store, services, hand)


@pytest.fixture
def unready(services: Services) -> Services:
    """A node that does not beat."""
    return replace(services, ready=lambda: False)
