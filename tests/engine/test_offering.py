"""Tickets after commits: everything that can be claimed within the horizon is offered, and no write fails by it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from horae.core import effects
from horae.core.changes import Change, OneShotRevised
from horae.core.decisions.results import Failure, fail, give_back, start, succeed
from horae.core.model import JobError, NodeId, Reason, Run
from horae.core.records import QueueSettings
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.metrics import Metrics
from horae.offering import OfferingStore, offering_store
from horae.ports.store import Store
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.clocks import ManualClock
from tests.conformance.builders import MINUTE, NOW, SECOND, claims_of, firing, given_node, one_shot, recurring, slot_run
from tests.memory_queue import MemoryQueue

HORIZON = 30 * SECOND


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue(lambda: NOW, waits=False)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def store(tmp_path: Path, queue: MemoryQueue, metrics: Metrics) -> AsyncIterator[Store]:
    """A store whose writes wait until their tickets are offered."""
    inner = SqliteStore(tmp_path / "horae.db", wall=lambda: NOW)
    await inner.open()
    async with offering_store(
        inner, queue, ManualClock(NOW), metrics.tickets, horizon=HORIZON, patience=timedelta(seconds=10)
    ) as store:
        yield store
    await inner.close()


async def offered(queue: MemoryQueue) -> list[str]:
    """The runs that have tickets, which are taken by this."""
    taken = await queue.take(
        queues=(), without=(), tasks=("demo.echo",), now=NOW, until=NOW + 60 * MINUTE, limit=1000, wait=timedelta()
    )
    await queue.done(taken)
    return [each.ticket.run_id for each in taken]


async def claimed(store: Store, node: NodeId, *runs: Run) -> list[Run]:
    claims = await claims_of(store, node, among=[run.id for run in runs], until=NOW + MINUTE)
    return list(claims.runs)


async def test_new_runs_within_the_horizon_are_offered(store: Store, queue: MemoryQueue) -> None:
    now, soon, later = one_shot(), one_shot(NOW + HORIZON), one_shot(NOW + 2 * HORIZON)
    await store.create([now, soon, later, one_shot(paused=True)])
    assert await offered(queue) == [now.id, soon.id]


async def test_runs_of_changes_are_offered_unless_they_were_refused(store: Store, queue: MemoryQueue) -> None:
    job = recurring()
    first, second = slot_run(job, NOW), slot_run(job, NOW + SECOND)
    await acts.create(store, [firing(job, first, second)])
    again = effects.create_job(firing(job, slot_run(job, NOW + 2 * SECOND)))
    assert (await store.apply([again]))[0] is not None
    assert await offered(queue) == [first.id, second.id]


async def test_a_one_shot_that_is_resumed_or_moved_closer_is_offered(store: Store, queue: MemoryQueue) -> None:
    run = one_shot(NOW + 60 * MINUTE, paused=True)
    await store.create([run])
    assert await offered(queue) == []
    moved = replace(run, paused=False, due_at=NOW + SECOND, wake_at=NOW + SECOND, revision=2)
    assert await store.apply([Change(puts=(OneShotRevised(moved),))]) == [None]
    assert await offered(queue) == [run.id]


async def test_retries_and_what_is_given_back_are_offered(store: Store, queue: MemoryQueue) -> None:
    node = await given_node(store)
    runs = [one_shot(), one_shot(), one_shot()]
    await store.create(runs)
    await offered(queue)
    failed, returned, done = await claimed(store, node, *runs)
    retry = Failure(error=JobError(type="ValueError", message="no"), retry_after=5 * SECOND)
    results = [
        fail(start(failed, NOW), retry, NOW, 0.0),
        give_back(returned, NOW),
        succeed(start(done, NOW), None, NOW),
    ]
    assert await store.settle(results) == [True] * 3
    assert sorted(await offered(queue)) == sorted([failed.id, returned.id])


async def test_void_results_offer_nothing(store: Store, queue: MemoryQueue) -> None:
    node = await given_node(store)
    await store.create([one_shot()])
    [run] = (await claims_of(store, node)).runs
    await offered(queue)
    assert await store.settle([give_back(replace(run, fence=run.fence + 1), NOW)]) == [False]
    assert await offered(queue) == []


async def test_a_parked_run_is_offered_when_its_gate_is_left(store: Store, queue: MemoryQueue) -> None:
    line = [one_shot(NOW - SECOND, gate="g"), one_shot(gate="g")]
    await store.create(line)
    node = await given_node(store)
    [first] = await claimed(store, node, line[0])
    await acts.park(store, [line[1]])
    await offered(queue)
    assert await store.settle([succeed(start(first, NOW), None, NOW)]) == [True]
    assert await offered(queue) == [line[1].id]


async def test_stop_requests_and_new_settings_are_signalled_by_the_queue(store: Store, queue: MemoryQueue) -> None:
    heard: list[Signal] = []
    queue.subscribe(heard.append)
    node = await given_node(store)
    await store.create([one_shot(NOW + SECOND)])
    assert heard == [], "what is due is told by tickets"
    await acts.set_queue(store, QueueSettings(queue="mail", paused=True))
    [run] = (await claims_of(store, node, until=NOW + SECOND)).runs
    await acts.request_stop(store, [run.id], Reason.CANCELLED)
    assert [signal.kind for signal in heard] == [Kind.DUE, Kind.STOP]
    assert heard[1].node == node


async def test_a_write_succeeds_at_once_while_the_queue_is_down_and_its_tickets_follow(
    store: Store, queue: MemoryQueue, metrics: Metrics
) -> None:
    queue.down = True
    runs = [one_shot() for _ in range(3)]
    async with asyncio.timeout(5):
        for run in runs:
            await store.create([run])
    assert metrics.registry.get_sample_value("horae_tickets_total", {"event": "failed"})
    queue.down = False
    async with asyncio.timeout(10):
        while queue.offered < len(runs):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.02)
    assert sorted(await offered(queue)) == sorted(run.id for run in runs)


async def test_tickets_that_still_wait_are_offered_when_the_store_is_left(tmp_path: Path, queue: MemoryQueue) -> None:
    inner = SqliteStore(tmp_path / "horae.db", wall=lambda: NOW)
    await inner.open()
    run = one_shot()
    async with offering_store(inner, queue, ManualClock(NOW), Metrics().tickets, horizon=HORIZON) as store:
        await store.create([run])
    assert await offered(queue) == [run.id]
    await inner.close()


async def test_all_that_is_no_write_passes_through(store: Store, queue: MemoryQueue) -> None:
    run = one_shot()
    await store.create([run])
    assert await store.runs([run.id]) == {run.id: run}
    assert isinstance(store, OfferingStore)
    assert not hasattr(store, "enlistment"), "SQLite takes part in no transaction of users"
