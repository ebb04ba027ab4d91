"""Submitting inside the caller's own transaction, with whatever driver they use."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from horae import Horae, Invalid
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests.postgres_server import postgres_url
from tests.sdk.conftest import Work
from tests.sdk.tasks import Tasks

Given = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture
def kind() -> str:
    return "postgres"


class Leave(Exception):
    """Ends a transaction without its commit."""


@asynccontextmanager
async def with_asyncpg() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url())
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool() -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(postgres_url(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def with_psycopg() -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(postgres_url()) as connection:
        yield connection


@asynccontextmanager
async def with_sqlalchemy_connection() -> AsyncIterator[Any]:
    engine = create_async_engine(_url("asyncpg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def with_sqlalchemy_session() -> AsyncIterator[Any]:
    engine = create_async_engine(_url("psycopg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


def _url(driver: str) -> str:
    return postgres_url().replace("postgresql://", f"postgresql+{driver}://", 1)


ASYNC = [with_asyncpg, with_asyncpg_pool, with_psycopg, with_sqlalchemy_connection, with_sqlalchemy_session]


async def count(store: Store) -> int:
    return len((await store.list_runs(RunFilter(), cursor=None, limit=100)).items)


@pytest.mark.parametrize("given", ASYNC)
async def test_a_job_exists_when_the_transaction_commits(given: Given, tasks: Tasks, store: Store, work: Work) -> None:
    await work()
    async with given() as transaction:
        handle = await tasks.add.using(tx=transaction, queue="mail").submit(1, 2)
        many = await tasks.add.using(tx=transaction).submit_many([{"left": 1}, {"left": 2}])
        assert await count(store) == 0
        with pytest.raises(TimeoutError, match="was the transaction that submitted it committed"):
            await handle.result(timeout=0.05)
    assert await handle.result(timeout=20) == 3
    assert [await each.result(timeout=20) for each in many] == [2, 3]


@pytest.mark.parametrize("given", ASYNC)
async def test_nothing_remains_of_a_transaction_that_is_rolled_back(given: Given, tasks: Tasks, store: Store) -> None:
    async def leave() -> None:
        async with given() as transaction:
            await tasks.add.using(tx=transaction, key="k").submit(1)
            raise Leave

    with pytest.raises(Leave):
        await leave()
    assert await count(store) == 0
    await tasks.add.using(key="k").submit(1)  # the key is free


def psycopg_sync(tasks: Tasks, *, commit: bool) -> str:
    with psycopg.connect(postgres_url()) as connection:
        handle = tasks.add.using(tx=connection).submit_sync(1, 2)
        if not commit:
            connection.rollback()
    return handle.id


def sqlalchemy_sync(tasks: Tasks, *, commit: bool) -> str:
    engine = sqlalchemy.create_engine(_url("psycopg"))
    with sqlalchemy.orm.Session(engine) as session:
        handle = tasks.add.using(tx=session).submit_sync(1, 2)
        (session.commit if commit else session.rollback)()
    engine.dispose()
    return handle.id


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("submit", [psycopg_sync, sqlalchemy_sync])
async def test_code_without_an_event_loop_does_the_same(
    submit: Callable[..., str], commit: bool, tasks: Tasks, store: Store
) -> None:
    job_id = await asyncio.to_thread(submit, tasks, commit=commit)
    page = await store.list_runs(RunFilter(), cursor=None, limit=10)
    assert [f"job_{run.job_id}" for run in page.items] == ([job_id] if commit else [])


async def test_a_key_that_is_taken_is_an_error_of_the_transaction(tasks: Tasks, store: Store) -> None:
    await tasks.add.using(key="k").submit(1)
    with pytest.raises(asyncpg.UniqueViolationError, match="the key"):
        async with with_asyncpg() as transaction:
            await tasks.add.using(tx=transaction, key="k").submit(2)
    assert await count(store) == 1


async def test_a_connection_that_commits_each_statement_is_refused(tasks: Tasks, store: Store) -> None:
    connection = await asyncpg.connect(postgres_url())
    with pytest.raises(Invalid, match="not in a transaction"):
        await tasks.add.using(tx=connection).submit(1)
    await connection.close()
    async with await psycopg.AsyncConnection.connect(postgres_url(), autocommit=True) as other:
        with pytest.raises(Invalid, match="autocommit"):
            await tasks.add.using(tx=other).submit(1)
        async with other.transaction():
            await tasks.add.using(tx=other).submit(1)
    assert await count(store) == 1


async def test_a_connection_of_the_wrong_kind_is_explained(tasks: Tasks, store: Store) -> None:
    async with with_asyncpg() as transaction:
        with pytest.raises(TypeError, match="asyncpg connection needs `await"):
            await asyncio.to_thread(tasks.add.using(tx=transaction).submit_sync, 1)
    async with with_psycopg() as transaction:
        with pytest.raises(TypeError, match="connection is async; use `await"):
            await asyncio.to_thread(tasks.add.using(tx=transaction).submit_sync, 1)
    with psycopg.connect(postgres_url()) as blocking:
        with pytest.raises(TypeError, match="blocking; use submit_sync"):
            await tasks.add.using(tx=blocking).submit(1)
        blocking.rollback()
    with pytest.raises(TypeError, match=r"tx= must be an asyncpg or psycopg 3 connection.*not builtins\.str"):
        await tasks.add.using(tx="transaction").submit(1)
    async with with_asyncpg() as transaction:
        with pytest.raises(Invalid, match="tx= and idempotency_key= cannot be combined"):
            await tasks.add.using(tx=transaction, idempotency_key="x").submit(1)
    assert await count(store) == 0


async def test_sqlite_has_no_part_in_transactions_of_others(tmp_path: Any) -> None:
    async with Horae(store=f"sqlite:///{tmp_path}/horae.db") as app, with_asyncpg() as transaction:
        with pytest.raises(Invalid, match=r"needs a PostgreSQL store.*submit after your commit"):
            await app.task("x")(lambda: None).using(tx=transaction).submit()
