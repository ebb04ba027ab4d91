"""A cluster in virtual time on a real store: SQLite in every run, PostgreSQL at full size."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.clocks import ManualClock
from tests.engine.system import START, System
from tests.memory_queue import MemoryQueue
from tests.postgres_server import postgres_url, scratch_schema
from tests.proof.checking.whole_store import found_in


@pytest.fixture(params=["sqlite", "sqlite with a queue", pytest.param("postgres", marks=pytest.mark.acceptance)])
async def system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    async with system_on(request.param, tmp_path) as system:
        yield system


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.acceptance)])
async def store_system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    """A system without a queue in front of its store, for what claims in the store alone do."""
    async with system_on(request.param, tmp_path) as system:
        yield system


@pytest.fixture(params=["sqlite", "postgres"])
async def either_system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    """A system on both stores in every run, for defects that only one of them had."""
    async with system_on(request.param, tmp_path) as system:
        yield system


@asynccontextmanager
async def system_on(kind: str, tmp_path: Path) -> AsyncIterator[System]:
    """A system on a store that nothing is wrong with at the end."""
    clock = ManualClock(START)
    if kind.startswith("sqlite"):
        store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False), wall=clock.now)
        await store.open()
        queue = MemoryQueue(clock.now, waits=False) if kind.endswith("queue") else None
        system = System(store, clock, queue=queue)
        yield system
        assert await found_in(store, clock.now()) == []
        await store.close()
    else:
        async with scratch_schema(postgres_url()) as url:
            postgres = PostgresStore(url)
            await postgres.migrate()
            await postgres.open()
            system = System(postgres, clock)
            yield system
            assert await found_in(postgres, clock.now()) == []
            await postgres.close()
