"""Runs that are submitted in a transaction of the user: they exist when that commits, and only then."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from horae.core.events import EventKind
from horae.core.job_rules import job_of
from horae.core.model import Run
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.engine.worker.scan_floor import FLOOR_AGE
from horae.lookup import find_job_by_key, find_run
from horae.stores.postgres.store import PostgresStore
from tests import acts
from tests.conformance.builders import ODD, claims_of, given_node, ids, new_id, one_shot, unusual_policy
from tests.postgres_server import postgres_url, scratch_schema

SECOND = timedelta(seconds=1)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with scratch_schema(postgres_url()) as address:
        await PostgresStore(address).migrate()
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def caller() -> AsyncIterator[asyncpg.Connection]:
    """A connection of the user, whose search_path is not ours."""
    connection = await asyncpg.connect(postgres_url())
    yield connection
    await connection.close()


def a_run(**changes: Any) -> Run:
    """A one-shot that is due now."""
    now = datetime.now(UTC)
    return one_shot(now, created_at=now, **changes)


async def enlist(store: PostgresStore, caller: asyncpg.Connection, *runs: Run) -> None:
    enlistment = await store.enlistment(runs)
    await caller.execute(enlistment.sql("$1"), enlistment.argument)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_runs_exist_when_the_transaction_commits(store: PostgresStore, caller: asyncpg.Connection) -> None:
    runs = [
        a_run(),
        a_run(
            owner=ODD,
            name=ODD,
            params='{"text": "\\u0000"}',
            labels={"a": ODD},
            policy=unusual_policy(),
            secrets="v1:sealed",
            gate="key:ada:k",
            ordering_key="k",
            priority=-7,
            queue="mail",
        ),
    ]
    async with caller.transaction():
        await enlist(store, caller, *runs)
        assert [await find_run(store, run.id, owner=None) for run in runs] == [None, None]
    assert [await find_run(store, run.id, owner=None) for run in runs] == runs

    claims = await claims_of(store, await given_node(store), now=runs[1].due_at, until=runs[1].due_at)
    assert sorted(ids(claims.runs)) == sorted(ids(runs))


async def test_a_transaction_that_is_rolled_back_leaves_nothing(
    store: PostgresStore, caller: asyncpg.Connection
) -> None:
    run = a_run(key="k")
    transaction = caller.transaction()
    await transaction.start()
    await enlist(store, caller, run)
    await transaction.rollback()
    assert await find_run(store, run.id, owner=None) is None
    assert await find_job_by_key(store, "ada", "k") is None
    assert await store.events.read(after=None, owner=None, limit=10) == []


async def test_it_works_on_any_search_path_and_leaves_it_alone(
    store: PostgresStore, caller: asyncpg.Connection
) -> None:
    for path in ("public", "pg_catalog", '"no such schema"', ""):
        await caller.execute("SELECT set_config('search_path', $1, false)", path)
        run = a_run()
        await enlist(store, caller, run)
        assert await find_run(store, run.id, owner=None) == run
        assert await caller.fetchval("SELECT current_setting('search_path')") == path


async def test_it_works_in_a_schema_with_an_odd_name(caller: asyncpg.Connection) -> None:
    quoted = f'"{new_id()} 100% Ünd so"'
    store = PostgresStore(f"{postgres_url()}&search_path={quote(quoted)}")
    await store.migrate()
    await store.open()
    try:
        run = a_run()
        await enlist(store, caller, run)
        assert await find_run(store, run.id, owner=None) == run
        enlistment = await store.enlistment([run])
        assert "100%% " in enlistment.sql("%s"), "what formats parameters into the text must leave the name alone"
    finally:
        await store.close()
        await caller.execute(f"DROP SCHEMA {quoted} CASCADE")


async def test_listeners_are_told_at_the_commit_in_the_order_of_the_commits(
    store: PostgresStore, caller: asyncpg.Connection
) -> None:
    enlisted, direct = a_run(), a_run()
    async with caller.transaction():
        await enlist(store, caller, enlisted)
        await acts.create(store, [direct])
        first = await store.events.read(after=None, owner="ada", limit=10)
        assert [batch.subjects for batch in first] == [[direct.job_id]], "a long transaction holds up nobody"
    [later] = await store.events.read(after=first[0].position, owner="ada", limit=10)
    assert (later.kind, later.subjects) == (EventKind.JOB_CREATED, [enlisted.job_id])


async def test_workers_hear_of_it_at_the_commit(store: PostgresStore, caller: asyncpg.Connection) -> None:
    heard: list[Signal] = []
    store.subscribe(heard.append)
    run = a_run()
    async with caller.transaction():
        await enlist(store, caller, run)
        assert Signal(kind=Kind.DUE, at=run.wake_at) not in heard
    await until(lambda: Signal(kind=Kind.DUE, at=run.wake_at) in heard)


@pytest.mark.parametrize("seconds", [60, FLOOR_AGE / SECOND])
async def test_what_has_been_due_since_before_the_commit_wakes_with_it(
    store: PostgresStore, caller: asyncpg.Connection, seconds: float
) -> None:
    """A claim no longer looks at what woke long ago."""
    run = a_run()
    old = replace(run, due_at=run.due_at - seconds * SECOND, wake_at=run.wake_at - seconds * SECOND)
    async with caller.transaction():
        await enlist(store, caller, old)
    now = await store.time()
    claims = await claims_of(store, await given_node(store), now=now, until=now, floor=run.wake_at)
    assert ids(claims.runs) == [old.id]
    assert claims.runs[0].due_at == old.due_at


async def test_a_key_that_is_taken_is_refused_and_says_by_whom(
    store: PostgresStore, caller: asyncpg.Connection
) -> None:
    holder = a_run(key=ODD)
    await acts.create(store, [holder])
    with pytest.raises(asyncpg.UniqueViolationError, match="is taken by another unfinished job of ada") as refused:
        async with caller.transaction():
            await enlist(store, caller, a_run(), a_run(key=ODD))
    assert refused.value.detail == holder.job_id
    assert refused.value.table_name == "keys"
    assert await find_job_by_key(store, "ada", ODD) == job_of(holder)


async def test_two_runs_with_one_key_are_refused(store: PostgresStore, caller: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        await enlist(store, caller, a_run(key="k"), a_run(key="k"))
    assert await find_job_by_key(store, "ada", "k") is None


async def test_a_key_is_held_from_the_commit_on(store: PostgresStore, caller: asyncpg.Connection) -> None:
    run, late = a_run(key="k"), a_run(key="k")
    async with caller.transaction():
        await enlist(store, caller, run)
        creating = asyncio.create_task(acts.create(store, [late]))
    assert await creating == [run.job_id]
    assert await find_job_by_key(store, "ada", "k") == job_of(run)


async def test_an_empty_enlistment_does_nothing(store: PostgresStore, caller: asyncpg.Connection) -> None:
    await enlist(store, caller)
    assert await store.events.read(after=None, owner=None, limit=10) == []


async def test_a_driver_that_encodes_json_by_itself_does_not_matter(
    store: PostgresStore, caller: asyncpg.Connection
) -> None:
    for kind in ("json", "jsonb"):
        await caller.set_type_codec(kind, schema="pg_catalog", encoder=repr, decoder=str)
    run = a_run()
    await enlist(store, caller, run)
    assert await find_run(store, run.id, owner=None) == run
