"""A cluster in virtual time on a real store: SQLite in every run, PostgreSQL at full size."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horae.clock import ManualClock
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite_executor import InlineExecutor
from tests.checking.reading import found_in
from tests.postgres_server import postgres_url, scratch_schema
from tests.services.system import START, System


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.acceptance)])
async def system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    clock = ManualClock(START)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False), wall=clock.now)
        await store.open()
        system = System(store, clock)
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
