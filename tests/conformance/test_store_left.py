"""Queues with a limit: claims say where the runs begin that they left, so that the next need not step over others."""

import time
from collections.abc import Mapping
from datetime import datetime

import pytest

from horae.core.decisions.fairness import Lane
from horae.core.model import NodeId
from horae.core.records import QueueSettings
from horae.engine.worker.scan_floor import LeftRuns
from horae.ports.store import Store
from horae.stores.dynamodb import growth as dynamodb_growth
from horae.stores.dynamodb.store import DynamoStore
from tests import acts
from tests.conformance.builders import MINUTE, NOW, SECOND, claimed, claims_of, given_node, ids, one_shot

UNKNOWN = 40_000  # due runs of a task that nobody knows
BATCH = 10_000
LOOKS = 7
MOST_TIMES = 3  # as long as beside no other runs
ALLOWANCE = 0.002  # seconds
LANE = Lane("default", 0, "ada")


async def limit(store: Store, concurrency: int, queue: str = "default") -> None:
    await acts.set_queue(store, QueueSettings(queue=queue, concurrency=concurrency))


async def test_a_claim_says_when_the_first_run_wakes_that_it_left(store: Store) -> None:
    await limit(store, 2)
    runs = [one_shot(NOW - number * SECOND) for number in (5, 4, 3, 2)]
    unknown = [one_shot(NOW - number * SECOND, task="nobody's") for number in (9, 4, 3)]
    await acts.create(store, [*runs, *unknown])
    node = await given_node(store)
    for left_at in (NOW - 3 * SECOND, NOW - 3 * SECOND):  # also when the queue is full
        assert (await claims_of(store, node)).left == {LANE: left_at}


async def test_a_claim_that_left_nothing_says_how_far_it_looked(store: Store) -> None:
    await limit(store, 5)
    await acts.create(store, [one_shot(), one_shot(NOW - SECOND, task="nobody's"), one_shot(NOW + 2 * MINUTE)])
    claims = await claims_of(store, await given_node(store), until=NOW + MINUTE)
    assert claims.left == {LANE: NOW + MINUTE}


async def test_nothing_is_said_of_queues_without_a_limit(store: Store) -> None:
    await acts.create(store, [one_shot(), one_shot()])
    assert (await claims_of(store, await given_node(store), limit=1)).left == {}


async def test_a_claim_begins_where_an_earlier_one_left_off(store: Store) -> None:
    await limit(store, 5)
    runs = [one_shot(NOW - number * SECOND) for number in (5, 4, 3)]
    await acts.create(store, runs)
    node = await given_node(store)
    later = await claimed(store, node, floor=NOW, left={LANE: NOW - 4 * SECOND})
    assert ids(later) == ids(runs[1:])
    assert ids(await claimed(store, node, floor=NOW)) == ids(runs[:1]), "all is looked at where nothing is known"


async def test_runs_that_wait_for_their_gate_are_left(store: Store) -> None:
    await limit(store, 5)
    await acts.create(store, [one_shot(NOW - number * SECOND, gate="g") for number in (5, 4)])
    node = await given_node(store)
    assert (await claims_of(store, node, undecided_gates=("g",), full_gates=("g",))).left == {LANE: NOW - 5 * SECOND}


async def test_runs_that_nobody_knows_do_not_make_claims_slow(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb_growth, "BUSY", BATCH)  # an emulator reads many shards one after another
    for queue in ("default", "quiet"):
        await limit(store, 2, queue)
    unknown = UNKNOWN // 20 if isinstance(store, DynamoStore) else UNKNOWN  # an emulator takes long to create more
    for start in range(0, unknown, BATCH):
        some = min(BATCH, unknown - start)
        await acts.create(store, [one_shot(NOW - MINUTE, task="nobody's") for _ in range(some)])
    node = await given_node(store)
    quiet = await seconds_of_claims(store, node, "quiet")
    beside_them = await seconds_of_claims(store, node, "default")
    assert beside_them < MOST_TIMES * quiet + ALLOWANCE


async def seconds_of_claims(store: Store, node: NodeId, queue: str) -> float:
    """How long a claim takes in a queue in which a run is left for lack of room; the shortest of some."""
    await acts.create(store, [one_shot(NOW - SECOND, queue=queue) for _ in range(3)])
    left, took = LeftRuns(), []
    for number in range(LOOKS):
        began = effort(store)
        claims = await claims_of(store, node, queues=(queue,), floor=NOW, left=begin(left, number))
        took.append(effort(store) - began)
        left.answered(claims)
    return min(took[1:])


def effort(store: Store) -> float:
    """Seconds; of DynamoDB requests, because an emulator needs longer for each the more it holds."""
    return store.counters.total().requests if isinstance(store, DynamoStore) else time.perf_counter()


def begin(left: LeftRuns, number: int) -> Mapping[Lane, datetime]:
    """Where a claim begins; the first looks at everything."""
    return left.begin(NOW if number else None)
