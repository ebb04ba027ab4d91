"""What runs cost on DynamoDB, by the counters of the adapter: units and requests.

An emulator counts each statement and each item as one unit and leaves out indexes, so their entries are added here: an
index has a new entry for each new run of an owner, and one for each new run of a recurring job.
"""

from datetime import datetime, timedelta

import pytest

from horae.core.decisions.firing import Due, fire
from horae.core.decisions.results import start, succeed
from horae.core.model import NodeId, Run
from horae.core.schedule.types import Every
from horae.planning import write_firings
from horae.stores.dynamodb import signals
from horae.stores.dynamodb.store import DynamoStore
from tests import acts
from tests.conformance.builders import MINUTE, NOW, claims_of, given_job, given_node, new_id, one_shot, recurring

BATCH = 500
FIRINGS = 10
AHEAD = timedelta(seconds=20)  # of the first slot, a job is fired


def units(store: DynamoStore) -> float:
    return store.counters.total().write_units


async def live(store: DynamoStore, node: NodeId, now: datetime, free: list[str]) -> list[Run]:
    """Claim and settle all that is due, as a worker does."""
    claims = await claims_of(store, node, now=now, until=now, limit=1000, free_gates=list(free))
    free[:] = [run.gate for run in claims.runs if run.gate is not None]
    assert all(await store.settle([succeed(start(run, now), None, now) for run in claims.runs]))
    return list(claims.runs)


async def test_a_plain_one_shot_costs_little_in_full_batches(store: DynamoStore) -> None:
    node = await given_node(store)
    await acts.create(store, [one_shot()])
    await live(store, node, NOW, [])
    store.counters.reset()

    await acts.create(store, [one_shot() for _ in range(BATCH)])
    assert len(await live(store, node, NOW, [])) == BATCH

    assert units(store) / BATCH + 1 <= 5.5
    assert store.counters.total().requests / BATCH <= 0.3


async def cost_of_recurring_runs(store: DynamoStore, interval: timedelta, each: int) -> float:
    """Write units of a run of a job that must not overlap and is fired for so many slots at once."""
    job = await given_job(store, recurring(schedule=Every(interval=interval, anchor=NOW), plan_at=NOW))
    node = await given_node(store)
    free: list[str] = []
    for number in range(FIRINGS + 1):
        if number == 1:
            store.counters.reset()  # the first one makes the lane, and the directory of owners
        first = NOW + number * each * interval
        now = first - AHEAD
        found = await store.plannable(range(64), now=now, limit=10)
        [due] = found.jobs or [Due(job=(await store.jobs([job.id]))[job.id])]
        firing = fire(due, now=now, horizon=AHEAD + (each - 0.5) * interval, new_id=new_id)
        assert len(firing.runs) == each
        assert await write_firings(store, [firing]) == [True]
        for slot in range(each):
            await store.beat(node, now=first + slot * interval, running=0, dead_after=MINUTE)
            [run] = await live(store, node, first + slot * interval, free)
            assert run.gate is not None
    beats = store.counters.by_verb()["beat"].write_units
    return (units(store) - beats) / FIRINGS / each + 2


async def test_a_recurring_run_that_must_not_overlap_costs_little_where_it_fires_often(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "NEAR", timedelta(days=-36_500))  # of a test's times all are long past
    assert await cost_of_recurring_runs(store, timedelta(seconds=1), 10) <= 10


async def test_a_recurring_run_that_must_not_overlap_costs_little_more_where_it_fires_rarely(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its firing, its event and its entry of the journal are batches of one."""
    monkeypatch.setattr(signals, "NEAR", timedelta(days=-36_500))
    assert await cost_of_recurring_runs(store, timedelta(minutes=5), 1) <= 11
