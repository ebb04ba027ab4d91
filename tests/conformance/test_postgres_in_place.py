"""Claims in PostgreSQL stay in the page of their run, and what is held is found without an index of its own."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from horae.core.decisions.results import give_back, lost, start, succeed
from horae.core.model import NodeId, Reason, State
from horae.core.records import QueueSettings
from horae.ports.reader import QueueDepth, RunFilter
from horae.stores.common.statements import load
from horae.stores.postgres.connection.database import Address, Session
from horae.stores.postgres.store import PostgresStore
from horae.stores.postgres.upkeep import find_held
from tests import acts
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    claimed,
    firing,
    given_claimed,
    given_node,
    given_running,
    ids,
    one_shot,
    recurring,
    slot_run,
)
from tests.postgres_server import postgres_url, scratch_schema

CLAIM = load("postgres")["claim"]
LONG_AGO = NOW.replace(year=1)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%await_claims()%' AND wait_event = 'PgSleep'"
COUNTED = "SELECT id FROM runs WHERE counted ORDER BY id"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with scratch_schema(postgres_url()) as address:
        yield address


@pytest.fixture
async def connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection beside those of the store, in its schema."""
    await PostgresStore(url).migrate()
    connection = await Address(url).connect()
    yield connection
    await connection.close()


@pytest.fixture
async def store(url: str, connection: asyncpg.Connection) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


async def claim(connection: asyncpg.Connection, node: NodeId, limit: int = 1000) -> list[Any]:
    """The rows of a claim in the transaction of the connection."""
    lanes = [ident for (ident,) in await connection.fetch("SELECT id FROM lanes")]
    given = (node, lanes, ["demo.echo"], NOW, NOW, LONG_AGO, limit, [], [], [], [LONG_AGO] * len(lanes))
    _, *rows = await connection.fetch(CLAIM, *given, [limit] * len(lanes), [], [], 100, 100)
    return rows


# --- in place


async def test_runs_of_schedules_lie_in_the_order_in_which_they_wake(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    jobs = [recurring() for _ in range(20)]
    slots = [NOW + n * MINUTE for n in range(5)]
    await acts.create(store, [firing(job, *(slot_run(job, slot) for slot in slots)) for job in jobs])
    assert await connection.fetchval("SELECT array_agg(wake_at ORDER BY ctid) FROM runs") == sorted(slots * len(jobs))


@pytest.mark.parametrize("gated", [False, True])
async def test_nearly_every_claim_writes_no_index(
    store: PostgresStore, connection: asyncpg.Connection, gated: bool
) -> None:
    node = await given_node(store)
    await acts.create(
        store,
        [
            one_shot(params=f'{{"text": "{"x" * (number % 200)}"}}', gate=f"gate {number}" if gated else None)
            for number in range(2000)
        ],
    )

    async with connection.transaction():
        for _ in range(4):
            assert len(await claim(connection, node, limit=500)) == 500
        [(updates, in_place)] = await connection.fetch(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'runs'::regclass"
        )

    assert updates == 2000
    assert in_place >= 0.95 * updates


async def test_only_held_runs_of_a_queue_with_a_limit_are_counted(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    await acts.set_queue(store, QueueSettings(queue="narrow", concurrency=5))
    node = await given_node(store)
    limited = [one_shot(queue="narrow"), one_shot(queue="narrow", gate="g")]
    *narrow, _, _ = await given_claimed(store, *limited, one_shot(), one_shot(gate="h"), node=node)
    assert [row[0] for row in await connection.fetch(COUNTED)] == ids(narrow)

    await store.settle([give_back(run, NOW) for run in narrow])
    assert await connection.fetch(COUNTED) == []


# --- limits that are set while runs are held


async def test_a_new_limit_counts_what_is_held_already(store: PostgresStore) -> None:
    node, other = await given_node(store), await given_node(store)
    first, *_ = await given_claimed(store, one_shot(), one_shot(NOW - MINUTE, priority=7), node=node)
    await acts.create(store, [one_shot(), one_shot()])

    await acts.set_queue(store, QueueSettings(queue="default", concurrency=2))
    assert await claimed(store, other) == []
    await store.settle([succeed(start(first, NOW), None, NOW)])
    assert len(await claimed(store, other)) == 1


async def test_a_new_limit_counts_what_a_claim_takes_that_began_before_it(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    node, other = await given_node(store), await given_node(store)
    await acts.create(store, [one_shot(), one_shot(), one_shot()])

    async with connection.transaction():
        assert len(await claim(connection, node, limit=2)) == 2
        setting = asyncio.create_task(acts.set_queue(store, QueueSettings(queue="default", concurrency=2)))
        watcher = await asyncpg.connect(postgres_url())
        async with asyncio.timeout(10):
            while not await watcher.fetchval(WAITING):
                assert not setting.done(), "it waits for the claim"
        await watcher.close()
    await setting

    assert await claimed(store, other) == []


async def test_a_limit_is_set_while_a_transaction_of_a_user_is_open(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    async with connection.transaction():
        await connection.execute("SELECT submit_runs('[]')")  # locks the runs against changes of their table
        async with asyncio.timeout(5):
            await acts.set_queue(store, QueueSettings(queue="default", concurrency=2))


# --- what dead nodes leave behind


async def test_what_is_left_behind_is_found_piece_by_piece_among_all_that_waits(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    gone = await given_node(store)
    left = await given_claimed(
        store,
        *(one_shot(NOW - number * SECOND, queue=queue) for number in range(3) for queue in ("default", "mail")),
        one_shot(NOW, priority=9),
        node=gone,
    )
    await given_claimed(store, *(one_shot() for _ in range(5)))  # of a node that is alive
    await acts.create(store, [one_shot(NOW - number // 2 * SECOND, queue="mail") for number in range(9)])
    await acts.unregister(store, gone)

    session, given = Session(connection), {"last_at": NOW, "at_once": 2}
    assert sorted(ids(await find_held(session, [gone], limit=100, **given))) == sorted(ids(left))
    assert len(await find_held(session, [gone], limit=3, **given)) == 3
    assert sorted(ids(await store.orphans(limit=100))) == sorted(ids(left))


async def test_who_looks_for_what_dead_nodes_left_behind_keeps_nothing_else_of_a_herd(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    gone = await given_node(store)
    await given_claimed(store, one_shot(), one_shot(), node=gone)
    await acts.create(store, [one_shot() for _ in range(300)])
    lane = await connection.fetchval("SELECT id FROM lanes")

    await connection.execute(f"PREPARE orphans AS {load('postgres')['orphans']}")
    explain = "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) EXECUTE orphans"
    lines = await connection.fetch(f"{explain}('{{{gone}}}', {lane}, '-infinity', '{NOW}', 10)")
    kept = [int(found[1]) for line in lines if (found := re.search(r"CTE Scan .*actual rows=(\d+)", line[0]))]
    assert max(kept) == 2


async def test_one_looks_for_what_dead_nodes_left_behind_and_the_others_go_on(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    gone = await given_node(store)
    [left] = await given_claimed(store, one_shot(), node=gone)
    await acts.unregister(store, gone)

    async with connection.transaction():
        assert await connection.fetchval(load("postgres")["lock_dead_nodes"])
        assert await store.orphans(limit=10) == []
    assert await store.orphans(limit=10) == [left]


async def test_a_grave_stays_while_there_may_be_more_than_was_looked_for(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    first, second = await given_node(store), await given_node(store)
    await given_claimed(store, one_shot(), node=first)
    [left] = await given_claimed(store, one_shot(), node=second)
    await acts.unregister(store, first)
    await acts.unregister(store, second)

    [found] = await store.orphans(limit=1)
    assert await connection.fetchval("SELECT count(*) FROM graves") == 2
    await store.settle([lost(found, NOW)])
    [found] = await store.orphans(limit=2)
    assert await connection.fetchval("SELECT node FROM graves") == found.node
    await store.settle([lost(found, NOW)])
    assert await store.orphans(limit=2) == []
    assert await connection.fetchval("SELECT count(*) FROM graves") == 0
    assert left.node == second


# --- lists


async def test_lists_tell_what_is_claimed_from_what_runs_and_what_waits(store: PostgresStore) -> None:
    node = await given_node(store)
    [running] = await given_running(store, one_shot(NOW - 3 * SECOND), node=node)
    [again] = await given_running(store, one_shot(NOW - 2 * SECOND), node=node)
    await store.settle([give_back(again, NOW + MINUTE)])  # it began once, and waits
    [held] = await given_claimed(store, one_shot(NOW - SECOND), node=node)
    waiting = one_shot(NOW + MINUTE)
    await acts.create(store, [waiting])

    async def listed(*states: State) -> list[str]:
        which = RunFilter(owner="ada", states=frozenset(states))
        return ids((await store.list_runs(which, cursor=None, limit=10)).items)

    assert await listed(State.RUNNING) == [running.id]
    assert await listed(State.CLAIMED) == [held.id]
    assert await listed(State.RUNNING, State.CLAIMED) == [held.id, running.id]
    assert await listed(State.SCHEDULED) == [waiting.id, again.id]
    assert await listed(*State) == [waiting.id, held.id, again.id, running.id]
    await acts.request_stop(store, [held.id, running.id], Reason.CANCELLED)
    stopping = RunFilter(owner="ada", states=frozenset({State.CLAIMED, State.RUNNING}), stopping=True)
    assert ids((await store.list_runs(stopping, cursor=None, limit=10)).items) == [held.id, running.id]
    depth = QueueDepth(queue="default", depth=1, oldest_due_at=held.due_at, running=1)
    assert await store.queues(now=NOW) == [depth]
