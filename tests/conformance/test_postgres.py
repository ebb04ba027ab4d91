"""What only a store on a server must do: migrate among many, survive lost connections, share runs without doubling."""

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from horae.core.decisions.release import Rival
from horae.core.decisions.results import Failure, cancel, fail, lost, start, succeed
from horae.core.effects import park
from horae.core.errors import Misconfigured, Unavailable
from horae.core.model import JobError, JobId, JobStatus, Policy, Run, RunId, State, Trigger
from horae.core.records import QueueSettings
from horae.core.schedule.types import Now
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.lookup import find_run
from horae.ports.reader import RunFilter
from horae.stores.common.apply import Named
from horae.stores.common.statements import load, migrations
from horae.stores.postgres.connection import database
from horae.stores.postgres.connection.database import (
    LIST_CONNECTIONS,
    Address,
    Collision,
    Session,
    door,
    retried,
)
from horae.stores.postgres.guards import lock
from horae.stores.postgres.store import PostgresStore
from tests import acts
from tests.acts import Retraction
from tests.conformance.builders import (
    DAY,
    NOW,
    SECOND,
    claims_of,
    given_ended,
    given_node,
    ids,
    new_id,
    one_shot,
    recurring,
)
from tests.conformance.test_store_retract import given_held, given_status
from tests.postgres_server import postgres_url, scratch_schema

NEWEST = migrations("postgres")[-1][0]
NEWEST_UNRELEASED = migrations("postgres")[0][0] - 1
LATER = NOW + timedelta(hours=1)
NO = JobError(type="ValueError", message="no")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """An address whose schema does not exist yet; its connections can be told from those of other tests."""
    async with scratch_schema(f"{postgres_url()}&application_name={secrets.token_hex(8)}") as address:
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    yield store
    await store.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def cut_all_connections(url: str) -> None:
    """End every connection of the store, as a restart of the server would."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()"
    )
    await connection.close()


# --- the schema


async def test_several_may_migrate_at_once(url: str) -> None:
    steps = await asyncio.gather(*(PostgresStore(url).migrate() for _ in range(5)))
    assert sorted(step for taken in steps for step in taken) == [number for number, _ in migrations("postgres")]
    assert (await PostgresStore(url).status())[:2] == (NEWEST, NEWEST)


async def test_a_store_that_is_not_migrated_is_not_opened(url: str) -> None:
    assert (await PostgresStore(url).status())[:2] == (0, NEWEST)
    with pytest.raises(Misconfigured, match="horae db migrate"):
        await PostgresStore(url).open()


async def test_a_store_of_a_newer_version_is_not_opened(url: str) -> None:
    await PostgresStore(url).migrate()
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO schema_versions (version) VALUES (1000)")
    await connection.close()
    with pytest.raises(Misconfigured, match="upgrade Horae"):
        await PostgresStore(url).open()


async def test_the_name_of_a_schema_may_be_odd(url: str) -> None:
    name = f"{url.split('search_path=')[1]} Ünd so"
    odd = PostgresStore(url.replace(url.split("search_path=")[1], quote(f'"{name}"')))
    try:
        assert await odd.migrate()
        await odd.open()
        assert await acts.create(odd, [run := one_shot()]) == [run.job_id]
    finally:
        await odd.close()
        connection = await asyncpg.connect(url)
        await connection.execute(f'DROP SCHEMA "{name}" CASCADE')
        await connection.close()


@pytest.mark.parametrize("option", ["search_path=two words", "no_such_setting=1"])
async def test_a_setting_that_the_server_refuses_is_misconfigured(option: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_STORE"):
        await PostgresStore(f"{postgres_url()}&{quote(option, safe='=')}").open()


@pytest.mark.parametrize("place", ["127.0.0.1:port/postgres", "127.0.0.1/postgres?sslmode=perhaps"])
async def test_an_address_that_cannot_be_read_is_misconfigured(place: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_STORE"):
        await PostgresStore(f"postgresql://postgres@{place}").open()


# --- upgrades


@pytest.mark.parametrize("version", [1, NEWEST_UNRELEASED])
async def test_a_store_of_a_version_that_was_never_released_is_refused(url: str, version: int) -> None:
    connection = await Address(url).connect()
    await connection.execute(f'CREATE SCHEMA "{url.split("search_path=")[1]}"')
    await connection.execute("CREATE TABLE schema_versions (version integer PRIMARY KEY, applied_at timestamptz)")
    await connection.execute("INSERT INTO schema_versions (version) VALUES ($1)", version)
    await connection.close()
    for refused in (PostgresStore(url).migrate(), PostgresStore(url).open()):
        with pytest.raises(Misconfigured, match=f"version {version}, which was never released"):
            await refused


async def test_days_are_sampled_little(url: str) -> None:
    store = PostgresStore(url)
    await store.migrate()
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT ensure_history_day($1)", NOW.date())
    found = await connection.fetch(
        "SELECT attrelid, array_agg(DISTINCT attstattarget) FROM pg_attribute"
        " WHERE attrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'history'::regclass) AND attnum > 0"
        " GROUP BY attrelid"
    )
    await connection.close()
    assert [targets for _, targets in found] == [[10]]


# --- batches: what their items share is sent once


def unlike() -> list[Run]:
    """Runs of which each differs from its neighbours in something else; all are due."""
    model, job = one_shot(), recurring()
    ours = [
        *({"owner": "bob"}, {"created_by": "eve"}, {"due_at": NOW - SECOND}, {"wake_at": NOW - SECOND}),
        *({"schedule": Now()}, {"schedule": None, "job_id": job.id}, {"trigger": Trigger.MANUAL}),
        *({"slot": NOW}, {"slot": NOW - SECOND}, {"gate": "g"}, {"revision": 7}, {"created_at": NOW - SECOND}),
        {"requeue_of": model.id},
    ]
    of_spec = [
        *({"params": '{"n":1}'}, {"params_blob": "b"}, {"name": "n"}, {"labels": {"a": "b"}}, {"queue": "mail"}),
        *({"priority": 5}, {"ordering_key": "o"}, {"policy": Policy(timeout=SECOND)}, {"secrets": "v1:sealed"}),
    ]
    changed = [replace(model, **changes) for changes in ours]
    changed += [replace(model, spec=replace(model.spec, **changes)) for changes in of_spec]
    pairs = [(replace(model), run) for run in changed]
    return [_with_new_id(run) for pair in pairs for run in pair]


def _with_new_id(run: Run) -> Run:
    ident = new_id()
    return replace(run, id=RunId(ident), job_id=JobId(ident) if run.one_shot else run.job_id)


async def test_runs_of_a_batch_may_differ_in_anything(store: PostgresStore) -> None:
    runs = unlike()
    await acts.create(store, runs)
    assert await store.runs([run.id for run in runs]) == {run.id: run for run in runs}
    node = await given_node(store)
    taken = (await claims_of(store, node)).runs
    assert {run.id: run for run in taken} == {
        run.id: replace(run, state=State.CLAIMED, node=node, fence=1) for run in runs
    }


async def test_results_of_a_batch_may_differ_in_anything(store: PostgresStore) -> None:
    await acts.create(store, [one_shot() for _ in range(20)])
    node = await given_node(store)
    tried = [start(run, NOW) for run in (await claims_of(store, node, limit=7)).runs]
    assert all(await store.settle([fail(run, Failure(error=NO), NOW, random_factor=0) for run in tried]))
    running = [start(run, LATER) for run in (await claims_of(store, node, until=LATER)).runs]
    assert {run.attempt for run in running} == {1, 2}
    ways = [
        lambda run: succeed(run, None, LATER),
        lambda run: succeed(run, '"done"', LATER + SECOND),
        lambda run: succeed(replace(run, progress=0.5), "1", LATER),
        lambda run: fail(run, Failure(error=NO, fatal=True), LATER, random_factor=0),
        lambda run: cancel(run, LATER),
    ]
    results = [ways[n % len(ways)](run) for n, run in enumerate(running)]
    gone = succeed(replace(running[3], fence=9), None, LATER)
    assert await store.settle([*results, gone]) == [True] * len(results) + [False]
    assert await store.runs([result.run.id for result in results]) == {result.run.id: result.run for result in results}


async def test_a_batch_of_which_some_are_there_already_is_completed(store: PostgresStore) -> None:
    first, second = one_shot(), one_shot()
    await acts.create(store, [first])
    assert await acts.create(store, [first, second, second]) == [first.job_id, second.job_id, second.job_id]
    listed = await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=9)
    assert sorted(ids(listed.items)) == sorted([first.id, second.id])


# --- lost connections


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid"])
async def test_a_server_that_is_not_there_is_unavailable(host: str) -> None:
    with pytest.raises(Unavailable):
        await PostgresStore(f"postgresql://nobody@{host}/nowhere").open()


async def test_a_standby_that_takes_no_writes_is_unavailable_and_can_be_read(store: PostgresStore, url: str) -> None:
    run = one_shot()
    await acts.create(store, [run])
    standby = PostgresStore(f"{url}&default_transaction_read_only=on")
    await standby.open()
    with pytest.raises(Unavailable):
        await standby.create([one_shot()])
    assert await find_run(standby, run.id, owner=None) == run
    await standby.close()


async def test_a_closed_store_is_unavailable(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(Unavailable):
        await acts.create(store, [one_shot()])


async def test_a_store_goes_on_after_all_its_connections_were_cut(store: PostgresStore, url: str) -> None:
    heard: list[Signal] = []
    store.subscribe(heard.append)
    other = PostgresStore(url)
    await other.open()
    await store.time()

    await cut_all_connections(url)

    await until(lambda: Signal(kind=Kind.ANY) in heard)  # whatever was said meanwhile was missed
    heard.clear()
    run = one_shot()
    for attempt in range(10):  # each connection of the pool may notice on its own
        try:
            await acts.create(other, [run])
            break
        except Unavailable:
            assert attempt < 9
    await until(lambda: Signal(kind=Kind.DUE, at=run.wake_at) in heard)
    assert await find_run(store, run.id, owner=None) == run
    await other.close()


async def test_of_transactions_that_wait_for_each_other_one_collides(store: PostgresStore, url: str) -> None:
    connections = [await asyncpg.connect(url) for _ in range(2)]
    await connections[0].execute("CREATE TABLE pair AS SELECT generate_series(1, 2) AS id")
    met = asyncio.Barrier(2)

    async def take(connection: asyncpg.Connection, *order: int) -> None:
        await connection.execute("SET deadlock_timeout = '50ms'")
        with door():
            async with connection.transaction():
                for number in order:
                    await connection.execute("UPDATE pair SET id = id WHERE id = $1", number)
                    if number == order[0]:
                        await met.wait()

    ends = await asyncio.gather(take(connections[0], 1, 2), take(connections[1], 2, 1), return_exceptions=True)
    for connection in connections:
        await connection.close()
    assert [type(end) for end in ends if end is not None] == [Collision]


async def test_a_verb_that_collided_is_done_once_more() -> None:
    calls = 0

    @retried
    async def verb() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Collision("another was first")
        return "done"

    assert await verb() == "done"


def collide(store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, at: int) -> None:
    """Have one of the next transactions, counted from 1, collide with another."""
    begin, begun = store._db.transaction, itertools.count(1)

    def transaction() -> AbstractAsyncContextManager[Session]:
        if next(begun) == at:
            raise Collision("another was first")
        return begin()

    monkeypatch.setattr(store._db, "transaction", transaction)


async def test_a_claim_that_collides_when_it_has_learned_of_a_limit_loses_nothing(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = await given_node(store), PostgresStore(url)
    await other.open()
    await acts.set_queue(other, QueueSettings(queue="narrow", concurrency=1))
    await other.close()
    runs = [one_shot(), one_shot(queue="narrow")]
    await acts.create(store, runs)
    collide(store, monkeypatch, at=1)
    assert sorted(ids((await claims_of(store, node)).runs)) == sorted(ids(runs))


async def test_a_claim_that_has_learned_of_a_limit_tells_what_it_left(store: PostgresStore, url: str) -> None:
    node, other = await given_node(store), PostgresStore(url)
    await other.open()
    await acts.set_queue(other, QueueSettings(queue="narrow", concurrency=1))
    await other.close()
    await acts.create(store, [one_shot(NOW - SECOND), one_shot()])
    claims = await claims_of(store, node, limit=1)
    assert (len(claims.runs), claims.more, claims.first_at) == (1, True, NOW - SECOND)


async def test_what_was_taken_back_is_told_although_the_next_collided(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, runs, _ = await given_held(store, NOW + SECOND, NOW + 2 * SECOND)
    await given_status(store, job, JobStatus.PAUSED)
    collide(store, monkeypatch, at=2)
    assert await acts.retract(store, runs, now=NOW) == [Retraction.TAKEN_BACK] * 2


async def test_a_store_that_does_not_listen_tells_others_and_is_told_nothing(store: PostgresStore, url: str) -> None:
    deaf = PostgresStore(url, listens=False)
    await deaf.open()
    told: list[Signal] = []
    heard: list[Signal] = []
    deaf.subscribe(told.append)
    store.subscribe(heard.append)
    third = PostgresStore(url)
    await third.open()
    first, second = one_shot(), one_shot(NOW + SECOND)
    await third.create([first])
    await until(lambda: Signal(kind=Kind.DUE, at=first.wake_at) in heard)
    await acts.create(deaf, [second])  # on the connection over which it would have been told of the first
    await until(lambda: Signal(kind=Kind.DUE, at=second.wake_at) in heard)
    assert told == [Signal(kind=Kind.DUE, at=second.wake_at)]
    await third.close()
    await deaf.close()


async def test_a_store_behind_a_pooler_keeps_nothing_in_a_session(store: PostgresStore, url: str) -> None:
    pooled = PostgresStore(f"{url}&pooler=1")
    await pooled.open()
    heard: list[Signal] = []
    pooled.subscribe(heard.append)
    run, node = one_shot(), await given_node(pooled)
    await acts.create(pooled, [run])
    [claimed] = (await claims_of(pooled, node)).runs
    assert await pooled.settle([succeed(start(claimed, NOW), None, NOW)]) == [True]
    heard.clear()
    await until(lambda: Signal(kind=Kind.ANY) in heard)  # nothing can be heard there, so it looks from time to time
    await pooled.close()


# --- a transaction that is held open elsewhere, behind which nothing dead is cleaned up


async def test_a_claim_that_leaves_more_tells_where_the_next_may_begin(store: PostgresStore) -> None:
    node = await given_node(store)
    await acts.create(store, [one_shot(NOW - number * SECOND) for number in range(1, 5)])

    alone = await claims_of(store, node, limit=2)
    await acts.create(store, [one_shot(NOW - 9 * SECOND, queue="other", priority=-1)])
    among = await claims_of(store, node, limit=1)

    assert (alone.more, alone.first_at) == (True, NOW - 4 * SECOND)
    assert (among.more, among.first_at) == (True, NOW - 9 * SECOND), "of what is left for later, too"
    assert [run.wake_at for run in among.runs] == [NOW - 2 * SECOND]


async def test_what_a_node_left_behind_is_looked_for_until_it_is_returned(store: PostgresStore, url: str) -> None:
    node = await given_node(store)
    await acts.create(store, [one_shot(NOW)])
    [run] = (await claims_of(store, node)).runs
    connection = await asyncpg.connect(url)
    graves = "SELECT count(*) FROM graves"

    await acts.unregister(store, node)
    assert await store.orphans(limit=10) == [run]
    assert await connection.fetchval(graves) == 1, "it holds something still"

    await store.settle([lost(run, LATER)])
    assert await store.orphans(limit=10) == []
    assert await connection.fetchval(graves) == 0
    await connection.close()


# --- where claims begin to look


async def test_a_run_of_a_task_that_nobody_knows_is_not_the_first_that_can_be_claimed(store: PostgresStore) -> None:
    """Or every claim would begin there, and walk over all that has been claimed since."""
    first = one_shot(NOW - 2 * SECOND, queue="b")
    await acts.create(
        store,
        [
            one_shot(NOW - timedelta(days=1), queue="a", task="long forgotten"),
            one_shot(NOW - timedelta(days=1), queue="c", task="long forgotten"),
            *(one_shot(NOW - SECOND, queue="a") for _ in range(3)),
            first,
            *(one_shot(NOW - SECOND, queue="b") for _ in range(3)),
        ],
    )
    node = await given_node(store)
    claims = await claims_of(store, node, limit=4)
    assert (len(claims.runs), claims.more, claims.first_at) == (4, True, first.wake_at)
    rest = await claims_of(store, node, limit=4)
    assert (len(rest.runs), rest.more, rest.first_at) == (3, False, NOW - SECOND)
    left = await claims_of(store, node, limit=4)
    assert (list(left.runs), left.more, left.first_at) == ([], False, None)


# --- many nodes


async def test_a_run_that_leaves_a_full_queue_calls_the_workers(url: str, store: PostgresStore) -> None:
    await acts.set_queue(store, QueueSettings(queue="default", concurrency=1))
    await acts.create(store, [one_shot(), one_shot()])
    mine, yours = await given_node(store), await given_node(store)
    other = PostgresStore(url)
    await other.open()
    [first] = (await claims_of(store, mine)).runs
    assert list((await claims_of(other, yours)).runs) == []
    heard: list[Signal] = []
    other.subscribe(heard.append)
    assert await store.settle([succeed(start(first, NOW), None, NOW)]) == [True]
    await until(lambda: Signal(kind=Kind.DUE) in heard)
    assert len((await claims_of(other, yours)).runs) == 1
    await other.close()


async def test_many_nodes_share_runs_without_doubling_or_losing_one(url: str, store: PostgresStore) -> None:
    runs = [one_shot(NOW - n % 7 * SECOND, priority=n % 3, queue=f"q{n % 2}") for n in range(2000)]
    await acts.create(store, runs)

    async def work() -> list[Run]:
        mine = PostgresStore(url, pool_size=1)
        await mine.open()
        node, taken = await given_node(mine), list[Run]()
        while claimed := (await claims_of(mine, node, limit=50)).runs:
            taken += claimed
            assert all(await mine.settle([succeed(start(run, NOW), None, NOW) for run in claimed]))
        await mine.close()
        return taken

    shares = await asyncio.gather(*(work() for _ in range(4)))
    assert Counter(run.id for share in shares for run in share) == Counter(ids(runs))


async def test_many_nodes_keep_the_order_of_each_gate(url: str, store: PostgresStore) -> None:
    runs = [one_shot(NOW - (200 - n) * SECOND, gate=f"gate {n % 5}") for n in range(200)]
    await acts.create(store, runs)
    ended: list[Run] = []

    async def work() -> None:
        mine = PostgresStore(url, pool_size=1)
        await mine.open()
        node = await given_node(mine)
        while len(ended) < len(runs):
            claims = await claims_of(mine, node, limit=10)
            await acts.park(mine, [contested.run for contested in claims.contested if contested.rivals])
            for run in claims.runs:
                assert await mine.settle([succeed(start(run, NOW), None, NOW)]) == [True]
                ended.append(run)
            await claims_of(mine, node, limit=0, free_gates=sorted({run.gate for run in claims.runs if run.gate}))
            await mine.tidy(now=NOW)
        await mine.close()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work() for _ in range(4)))
    for gate in {run.gate for run in runs}:
        assert ids([run for run in ended if run.gate == gate]) == ids([run for run in runs if run.gate == gate])


async def test_a_node_that_is_buried_while_it_claims_gets_nothing(store: PostgresStore, url: str) -> None:
    node, runs = await given_node(store), [one_shot(), one_shot(gate="g")]
    await acts.create(store, runs)
    burial = await asyncpg.connect(url)
    await burial.execute("BEGIN")
    await burial.execute("DELETE FROM nodes")

    claiming = asyncio.create_task(claims_of(store, node))
    async with asyncio.timeout(10):
        while not await burial.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        ):
            assert not claiming.done()
    await burial.execute("COMMIT")

    claims = await claiming
    assert (claims.alive, claims.runs) == (False, [])
    assert [await find_run(store, run.id, owner=None) for run in runs] == runs
    await burial.close()


async def test_a_claim_that_finds_nothing_writes_nothing(store: PostgresStore, url: str) -> None:
    node = await given_node(store)
    connection = await asyncpg.connect(url)
    locked = "SELECT xmax <> '0'::xid FROM nodes"
    assert (await claims_of(store, node)).alive
    assert not await connection.fetchval(locked)
    await acts.create(store, [one_shot()])
    assert len((await claims_of(store, node)).runs) == 1
    assert await connection.fetchval(locked)
    await connection.close()


async def test_a_run_that_is_being_parked_while_the_one_before_it_ends_goes_on(url: str, store: PostgresStore) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(NOW, gate="g")]
    await acts.create(store, line)
    node = await given_node(store)
    [first] = (await claims_of(store, node)).runs
    rival = Rival(id=first.id, job_id=first.job_id, started_at=None)
    other = await Address(url).connect()
    async with other.transaction():
        await lock(Session(other), Named.by([park(line[1], rival)]))
        await other.fetch(load("postgres")["park_runs"], [line[1].id])
        ending = asyncio.create_task(store.settle([succeed(start(first, NOW), None, NOW)]))
        async with asyncio.timeout(10):
            while not await other.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", other.get_server_pid()
            ):
                assert not ending.done()
    await other.close()

    assert await ending == [True]
    assert ids((await claims_of(store, node)).runs) == [line[1].id]


# --- lanes


async def test_a_lane_that_nobody_uses_any_more_is_removed(store: PostgresStore, url: str) -> None:
    connection = await Address(url).connect()
    await acts.create(store, [one_shot(NOW - SECOND, queue="gone"), one_shot(NOW - SECOND, queue="recent")])
    await acts.create(store, [one_shot(queue="paused", paused=True), one_shot(NOW + timedelta(days=9), queue="later")])
    taken = (await claims_of(store, await given_node(store), limit=2)).runs
    await store.settle([succeed(start(run, NOW), None, NOW) for run in taken])
    await connection.execute("UPDATE lanes SET used_at = used_at - interval '2 h' WHERE queue <> 'recent'")
    for seconds in (0, 31):
        await store.tidy(now=NOW + seconds * SECOND)
    another = PostgresStore(url)  # that has not looked for them in the last minutes
    await another.open()
    await another.tidy(now=NOW + 62 * SECOND)
    await another.close()
    left = [queue for (queue,) in await connection.fetch("SELECT queue FROM lanes ORDER BY queue")]
    await connection.close()
    assert left == ["later", "paused", "recent"]


async def test_many_new_lanes_are_quick_though_there_was_one_when_they_were_last_counted(
    store: PostgresStore, url: str
) -> None:
    """The server plans for what it counted: each verb would take longer than a statement may."""
    connection = await Address(url).connect()
    await connection.execute(
        "INSERT INTO lanes (queue, priority, owner) SELECT 'last ' || n, 0, 'ada' FROM generate_series(1, 5000) AS n"
    )
    await connection.execute("DELETE FROM lanes WHERE queue <> 'last 5000'")
    await connection.execute("VACUUM ANALYZE lanes")
    await connection.close()
    node = await given_node(store)
    runs = [one_shot(NOW - SECOND, queue=f"queue {number}") for number in range(1000)]
    await acts.create(store, runs)
    taken: list[Run] = []
    for turn in range(60):
        taken += (await claims_of(store, node, limit=100, now=NOW + turn * 2 * SECOND)).runs
    assert sorted(ids(taken)) == sorted(ids(runs))
    await store.settle([succeed(start(run, NOW), None, NOW) for run in taken])
    assert not (await claims_of(store, node)).runs
    await store.tidy(now=NOW)


async def test_a_shelf_that_nobody_uses_any_more_is_removed(store: PostgresStore, url: str) -> None:
    connection = await Address(url).connect()
    await given_ended(store, one_shot(queue="ended"))
    await acts.create(store, [one_shot(NOW + DAY, queue=queue) for queue in ("live", "recent", "relearned", "gone")])
    await connection.execute("DELETE FROM runs WHERE queue <> 'live'")
    await connection.execute("UPDATE shelves SET used_at = used_at - interval '2 h' WHERE queue <> 'recent'")
    another = PostgresStore(url)  # that has not looked for them in the last minutes, and knows no shelf
    await another.open()
    await acts.create(another, [one_shot(NOW + DAY, queue="relearned")])
    await connection.execute("DELETE FROM runs WHERE queue = 'relearned'")
    await another.tidy(now=NOW)
    left = [queue for (queue,) in await connection.fetch("SELECT queue FROM shelves ORDER BY queue")]
    assert left == ["ended", "live", "recent", "relearned"]
    run = one_shot(NOW + DAY, queue="gone")
    await acts.create(another, [run])
    await another.close()
    await connection.close()
    assert ids((await store.list_runs(RunFilter(owner="ada", queue="gone"), cursor=None, limit=9)).items) == [run.id]


async def test_a_run_that_was_committed_too_late_to_wake_its_lane_is_found(store: PostgresStore, url: str) -> None:
    """As if its transaction had taken longer than the lane was kept open."""
    connection = await Address(url).connect()
    run = one_shot()
    await acts.create(store, [run])
    await connection.execute("UPDATE lanes SET next_at = 'infinity', settled_at = NULL")
    await connection.close()
    node = await given_node(store)
    assert list((await claims_of(store, node)).runs) == []
    await store.tidy(now=NOW)
    assert ids((await claims_of(store, node)).runs) == [run.id]


async def test_lanes_of_an_earlier_release_share_a_claim_and_give_no_more_than_its_limit(
    store: PostgresStore, url: str
) -> None:
    """They have no owner, and there were several for a queue and priority."""
    runs = [one_shot(owner=f"owner {number % 3}") for number in range(60)]
    await acts.create(store, runs)
    connection = await Address(url).connect()
    await connection.execute("UPDATE lanes SET owner = NULL, next_at = '-infinity'")
    await connection.close()
    node = await given_node(store)
    taken = (await claims_of(store, node, limit=30)).runs
    assert Counter(run.owner for run in taken) == {f"owner {number}": 10 for number in range(3)}


async def test_places_that_are_forgotten_while_others_are_learned_are_not_missed(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What we know is learned anew now and then, also while a create waits for a lane that is new."""
    await acts.create(store, [one_shot(queue="known")])
    learn = store._learn_places

    async def learn_late(*given: Any) -> None:
        store._places = {}
        await learn(*given)

    monkeypatch.setattr(store, "_learn_places", learn_late)
    await acts.create(store, [one_shot(queue="known"), one_shot(queue="new")])
    assert len((await claims_of(store, await given_node(store))).runs) == 3


# --- lists beside the engine


async def test_lists_that_take_long_hold_up_nobody_but_lists(store: PostgresStore) -> None:
    async with AsyncExitStack() as busy, asyncio.timeout(10):
        for _ in range(LIST_CONNECTIONS):
            await busy.enter_async_context(store._db.browsing())
        waiting = [
            asyncio.create_task(store.list_runs(RunFilter(), cursor=None, limit=10, look=100)) for _ in range(20)
        ]
        await store.create([one_shot()])
        assert len((await claims_of(store, await given_node(store))).runs) == 1
        await busy.aclose()
        assert all(len(page.items) == 1 for page in await asyncio.gather(*waiting))


async def test_a_list_that_takes_too_long_is_ended_and_says_what_to_do(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LIST_TIMEOUT", 0.2)
    connection = await Address(url).connect()
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Unavailable, match=r"the list took longer than 0\.2 s; ask for fewer"):
                await store.list_runs(RunFilter(), cursor=None, limit=10, look=100)
    finally:
        await connection.close()
    assert (await store.list_runs(RunFilter(), cursor=None, limit=10, look=100)).items == []
