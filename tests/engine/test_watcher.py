"""The watcher of a planner: tickets of what comes within the horizon, of what was lost, and of what nobody offered."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from horae.core.errors import Unavailable
from horae.core.model import SHARDS, Run, shard_of
from horae.engine.cluster.lease import Timing
from horae.engine.duties import watcher as watching
from horae.engine.duties.watcher import CHECK, LOOK, OVERDUE, SWEEP, Watcher
from horae.metrics import Metrics
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.clocks import ManualClock
from tests.conformance.builders import NOW, SECOND, claims_of, given_node, one_shot
from tests.memory_queue import MemoryQueue

TIMING = Timing()


class Watched:
    """A store with a queue that a watcher fills; nobody else offers."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock(NOW)
        self.queue = MemoryQueue(self.clock.now, waits=False)
        self.shards = list(range(SHARDS))
        self.watcher = Watcher(
            store, self.queue, self.clock, Metrics().tickets, timing=TIMING, shards=lambda: self.shards
        )

    async def create(self, *runs: Run) -> None:
        await acts.create(self.store, runs)

    async def tick(self, **later: float) -> list[str]:
        """Let the watcher tick after a while; return the runs whose tickets came into the queue by that."""
        self.clock.advance(**later)
        await self.watcher.tick()
        return await self.tickets()

    async def tickets(self) -> list[str]:
        taken = await self.queue.take(
            queues=(),
            without=(),
            tasks=("demo.echo",),
            now=self.clock.now(),
            until=self.clock.now() + timedelta(days=1),
            limit=100_000,
            wait=timedelta(),
        )
        await self.queue.done(taken)
        return [each.ticket.run_id for each in taken]


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    store = SqliteStore(tmp_path / "horae.db", executor=InlineExecutor(durable=False), wall=lambda: NOW)
    await store.open()
    yield Watched(store)
    await store.close()


async def test_everything_within_the_horizon_is_offered_at_first_and_then_what_comes_into_it(watched: Watched) -> None:
    due, soon = one_shot(NOW - 60 * SECOND), one_shot(NOW + TIMING.horizon - SECOND)
    later, last = one_shot(NOW + TIMING.horizon + SECOND), one_shot(NOW + TIMING.horizon + 9 * SECOND)
    await watched.create(due, soon, later, last)
    assert await watched.tick() == [due.id, soon.id]
    assert await watched.tick(seconds=0.5) == []
    assert await watched.tick(seconds=4.5) == [later.id]
    assert last.id in await watched.tick(seconds=5)


async def test_nothing_falls_between_two_looks_ahead(watched: Watched) -> None:
    runs = [one_shot(NOW + n * SECOND / 7) for n in range(7 * 60)]
    await watched.create(*runs)
    found: set[str] = set()
    for _ in range(70):
        found.update(await watched.tick(seconds=0.5))
    assert found >= {run.id for run in runs}


async def test_everything_is_offered_again_when_the_queue_has_lost_it(watched: Watched) -> None:
    run = one_shot(NOW + 10 * SECOND)
    await watched.create(run)
    assert await watched.tick() == [run.id]
    watched.queue.forget()
    assert await watched.tick(seconds=CHECK.total_seconds()) == [run.id]


async def test_everything_is_offered_again_after_the_queue_was_out_of_reach(watched: Watched) -> None:
    run = one_shot(NOW + 10 * SECOND)
    await watched.create(run)
    await watched.tick()
    watched.queue.down = True
    with pytest.raises(Unavailable):
        await watched.tick(seconds=CHECK.total_seconds())
    watched.queue.down = False
    assert await watched.tick(seconds=0.1) == [run.id]


async def test_the_shards_of_a_planner_that_is_gone_are_offered_by_another(watched: Watched) -> None:
    runs = [one_shot() for _ in range(30)]
    await watched.create(*runs)
    watched.shards = list(range(32))
    mine = {run.id for run in runs if shard_of(run.job_id) < 32}
    assert set(await watched.tick()) == mine
    watched.shards = list(range(SHARDS))
    assert set(await watched.tick(seconds=0.1)) == {run.id for run in runs}


async def test_what_is_due_and_held_by_nobody_is_offered_by_a_sweep(watched: Watched) -> None:
    node = await given_node(watched.store)
    lost, held = one_shot(), one_shot()
    await watched.create(lost, held)
    await watched.tick()
    await claims_of(watched.store, node, among=[held.id])
    assert await watched.tick(seconds=(SWEEP - SECOND).total_seconds()) == []
    assert await watched.tick(seconds=1) == [lost.id]


async def test_a_signal_has_it_looked_for_what_nobody_offered(watched: Watched) -> None:
    """A user's own transaction may have written it."""
    await watched.tick()
    watched.clock.advance(seconds=1)
    now, soon = one_shot(NOW + SECOND), one_shot(NOW + 5 * SECOND)
    await watched.create(now, soon)
    assert watched.watcher.signal(now.wake_at) == watched.clock.now()
    assert await watched.tick() == [now.id]
    at = watched.watcher.signal(soon.wake_at)
    assert at == soon.wake_at - TIMING.lead
    assert soon.id in await watched.tick(seconds=(at - watched.clock.now() + TIMING.lead / 2).total_seconds())


async def test_signals_in_quick_succession_share_a_look(watched: Watched) -> None:
    await watched.tick()
    watched.clock.advance(seconds=1)
    watched.watcher.signal(NOW)
    await watched.tick()
    assert watched.watcher.signal(NOW) == watched.clock.now() + LOOK


async def test_a_signal_without_a_time_brings_a_sweep(watched: Watched) -> None:
    """A queue was resumed: what waited in it may be old."""
    run = one_shot(NOW - 60 * SECOND)
    await watched.tick()
    await watched.create(run)
    watched.clock.advance(seconds=1)
    watched.watcher.signal(None)
    assert await watched.tick() == [run.id]


async def test_under_overload_little_is_offered_again_and_a_loss_is_made_good_all_the_same(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PAGE", 10)
    runs = [one_shot(NOW + n * timedelta(milliseconds=1)) for n in range(200)]
    await watched.create(*runs)
    assert len(await watched.tick()) == len(runs)
    offered = watched.queue.offered
    watched.clock.advance(seconds=OVERDUE.total_seconds() + 1)
    for _ in range(20):
        watched.watcher.signal(runs[0].wake_at)
        await watched.tick(seconds=0.1)
    assert watched.queue.offered - offered <= 100, "half of the backlog in two seconds, and less later"
    found: set[str] = set()
    for _ in range(80):
        found.update(await watched.tick(seconds=1))
    assert found == {run.id for run in runs}, "each sweep goes deeper than the one before"
