"""Events in PostgreSQL: whoever writes at the same time, a listener misses nothing and gets nothing twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from horae.core.decisions.results import start, succeed
from horae.core.events import EventKind
from horae.ports.events import EventBatch
from horae.stores.postgres.events import Horizon
from horae.stores.postgres.store import PostgresStore
from tests import acts
from tests.conformance.builders import claimed, given_node, one_shot
from tests.postgres_server import postgres_url, scratch_schema


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
async def foreign(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody else to the same schema."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def told(store: PostgresStore, after: str | None = None) -> list[EventBatch]:
    return await store.events.read(after=after, owner=None, limit=1000)


# --- what is settled


def test_without_writers_all_numbers_are_settled() -> None:
    horizon = Horizon()
    horizon.see(7, frozenset())
    assert horizon.settled == 7


def test_a_number_is_settled_when_those_who_wrote_as_it_was_seen_are_gone() -> None:
    horizon = Horizon()
    horizon.see(7, frozenset({"1/1", "2/1"}))
    horizon.see(9, frozenset({"2/1", "3/1"}))
    assert horizon.settled == 0
    horizon.see(12, frozenset({"3/1", "4/1"}))
    assert horizon.settled == 7, "9 was seen with a writer that may still be at work"
    horizon.see(13, frozenset({"5/1"}))
    assert horizon.settled == 12


# --- among writers


async def test_a_long_transaction_of_somebody_else_does_not_hold_up_events(
    store: PostgresStore, foreign: asyncpg.Connection
) -> None:
    await foreign.execute("CREATE TABLE theirs (n integer)")
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("INSERT INTO theirs VALUES (1)")
    run = one_shot()
    await acts.create(store, [run])
    [batch] = await told(store)
    assert (batch.kind, batch.subjects) == (EventKind.JOB_CREATED, [run.job_id])
    assert await store.events.last() == batch.position
    await transaction.rollback()


async def test_nothing_is_listed_before_what_may_still_be_committed_in_front_of_it(
    store: PostgresStore, foreign: asyncpg.Connection
) -> None:
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("INSERT INTO events (kind, owner, subjects) VALUES ('job.updated', 'ada', '{}')")
    await acts.create(store, [one_shot()])
    assert await told(store) == []

    await transaction.commit()

    batches = await told(store)
    assert [batch.kind for batch in batches] == [EventKind.JOB_UPDATED, EventKind.JOB_CREATED]
    assert await told(store, batches[0].position) == batches[1:]


async def test_a_writer_that_gives_up_leaves_no_gap(store: PostgresStore, foreign: asyncpg.Connection) -> None:
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("INSERT INTO events (kind, owner, subjects) VALUES ('job.updated', 'ada', '{}')")
    await acts.create(store, [one_shot()])
    await transaction.rollback()
    assert [batch.kind for batch in await told(store)] == [EventKind.JOB_CREATED]


async def test_a_listener_hears_of_every_event_once_however_many_write(url: str, store: PostgresStore) -> None:
    rounds, writers = 15, 5
    expected: Counter[tuple[EventKind, str]] = Counter()
    heard: list[EventBatch] = []

    async def write(number: int) -> None:
        mine = PostgresStore(url, pool_size=2)
        await mine.open()
        node, queue, chance = await given_node(mine), f"q{number}", random.Random(number)
        for _ in range(rounds):
            runs = [one_shot(queue=queue, owner=chance.choice(["ada", "bob"])) for _ in range(chance.randint(1, 5))]
            keyed = one_shot(queue=queue, key=f"{number}")  # a transaction of several statements
            await acts.create(mine, [*runs, keyed])
            taken = await claimed(mine, node, queues=[queue])
            assert len(taken) == len(runs) + 1
            assert all(await mine.settle([succeed(start(run, run.due_at), None, run.due_at) for run in taken]))
            expected.update(
                (kind, run.id) for run in taken for kind in (EventKind.JOB_CREATED, EventKind.RUN_SUCCEEDED)
            )
        await mine.close()

    async def listen(done: asyncio.Event) -> None:
        after = None
        while True:
            last_look = done.is_set()
            batches = await store.events.read(after=after, owner=None, limit=7)
            heard.extend(batches)
            after = batches[-1].position if batches else after
            if last_look and not batches:
                return

    done = asyncio.Event()
    listening = asyncio.create_task(listen(done))
    async with asyncio.timeout(60):
        await asyncio.gather(*(write(number) for number in range(writers)))
        done.set()
        await listening

    assert Counter((batch.kind, subject) for batch in heard for subject in batch.subjects) == expected
    positions = [int(batch.position) for batch in heard]
    assert positions == sorted(set(positions))
    assert heard == await told(store), "the order is the same for whoever comes later"
