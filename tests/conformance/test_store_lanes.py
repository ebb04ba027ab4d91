"""Lanes: claims look only into those with something due, and whatever makes a run claimable wakes its lane."""

import time
from collections.abc import Awaitable, Callable

import pytest

from horae.core.decisions.fairness import LANES_OF_OWNER, MANY_LANES
from horae.core.decisions.results import cancel, give_back, succeed
from horae.core.model import NodeId, Run
from horae.core.records import QueueSettings
from horae.core.values import replace
from horae.ports.store import Store
from horae.stores.dynamodb.store import DynamoStore
from tests import acts
from tests.acts import Resolution
from tests.conformance.builders import (
    MINUTE,
    NOW,
    SECOND,
    buried,
    claimed,
    claims_of,
    given_job,
    given_node,
    given_running,
    ids,
    one_shot,
    recurring,
    retried,
    slot_run,
)

DAY = 24 * 60 * MINUTE


async def put_off(store: Store) -> None:
    """Long enough without anything to claim for lanes to be put off."""
    await claimed(store, await given_node(store), limit=0)
    for seconds in (0, 31, 62):
        await store.tidy(now=NOW - MINUTE * 5 + seconds * SECOND)


async def given_empty_lane(store: Store) -> NodeId:
    """A lane of one-shots that was used and has nothing to claim any more."""
    node = await given_node(store)
    await acts.create(store, [one_shot(NOW - 10 * MINUTE)])
    [run] = await claimed(store, node)
    assert await store.settle([cancel(run, NOW - 10 * MINUTE)]) == [True]
    assert await claimed(store, node) == []
    await put_off(store)
    return node


async def test_a_new_run_wakes_a_lane_that_was_put_off(store: Store) -> None:
    node = await given_empty_lane(store)
    later, run = one_shot(NOW + SECOND), one_shot()
    await acts.create(store, [later])
    await acts.create(store, [run])
    claims = await claims_of(store, node)
    assert (ids(claims.runs), claims.next_at) == ([run.id], NOW + SECOND)


async def test_a_firing_wakes_a_lane_that_was_put_off(store: Store) -> None:
    node = await given_empty_lane(store)
    made = recurring(next_fire_at=NOW + DAY)
    run = slot_run(made, NOW)
    await given_job(store, made, run)
    assert ids(await claimed(store, node)) == [run.id]


async def test_a_lane_waits_for_its_first_run(store: Store) -> None:
    node = await given_empty_lane(store)
    await acts.create(store, [one_shot(NOW + MINUTE), one_shot(NOW + 2 * MINUTE)])
    await put_off(store)
    claims = await claims_of(store, node)
    assert (list(claims.runs), claims.next_at) == ([], NOW + MINUTE)
    assert len(await claimed(store, node, until=NOW + MINUTE)) == 1


Act = Callable[[Store, Run], Awaitable[object]]


async def give_it_back(store: Store, run: Run) -> None:
    await store.settle([give_back(run, NOW)])


async def retry_it(store: Store, run: Run) -> None:
    await store.settle([retried(run)])


@pytest.mark.parametrize("act", [give_it_back, retry_it])
async def test_a_run_that_comes_back_wakes_its_lane(store: Store, act: Act) -> None:
    node = await given_node(store)
    [run] = await given_running(store, one_shot(NOW - 10 * MINUTE), node=node)
    await put_off(store)
    await act(store, run)
    assert ids(await claimed(store, node, until=NOW + DAY)) == [run.id]


async def test_a_one_shot_that_is_resumed_wakes_its_lane(store: Store) -> None:
    node = await given_node(store)
    run = one_shot(paused=True)
    await acts.create(store, [run])
    await put_off(store)
    resumed = replace(run, paused=False, revision=run.revision + 1)
    assert await acts.change_one_shot(store, resumed, expected=run.revision)
    assert ids(await claimed(store, node)) == [run.id]


async def test_a_one_shot_that_moves_to_another_queue_wakes_that_lane(store: Store) -> None:
    node = await given_empty_lane(store)
    run = one_shot(NOW + DAY)
    await acts.create(store, [run])
    moved = replace(run, spec=replace(run.spec, queue="other"), due_at=NOW, wake_at=NOW, revision=run.revision + 1)
    assert await acts.change_one_shot(store, moved, expected=run.revision)
    assert ids(await claimed(store, node, queues=["other"])) == [run.id]


@pytest.mark.parametrize("ends", [succeed, None], ids=["left", "resolved"])
async def test_a_parked_run_that_may_go_on_wakes_its_lane(store: Store, ends: object) -> None:
    node = await given_node(store)
    ahead = one_shot(NOW - 2 * MINUTE, gate="k", queue="first")
    behind = one_shot(NOW - MINUTE, gate="k", queue="second")
    [first] = await given_running(store, ahead, node=node)
    await acts.create(store, [behind])
    await acts.park(store, [behind])
    await put_off(store)
    await store.settle([succeed(first, None, NOW) if ends else buried(first)])
    if not ends:
        await acts.resolve(store, [Resolution(run_id=first.id)], now=NOW)
    assert ids(await claimed(store, node)) == [behind.id]


async def test_owners_who_never_ran_together_are_found_whatever_waits_elsewhere(store: Store) -> None:
    """More lanes are due than one claim looks into."""
    node = await given_node(store)
    runs = [one_shot(NOW - SECOND, queue=f"queue {number}") for number in range(450)]
    quiet = one_shot(owner="quiet")
    await acts.create(store, [*runs, quiet])
    first = await claims_of(store, node, limit=100)
    assert quiet.id in ids(first.runs)
    taken = list(first.runs)
    for _ in range(20):
        if len(taken) == len(runs) + 1:
            break
        taken += await claimed(store, node, limit=100)
    assert sorted(ids(taken)) == sorted(ids([*runs, quiet]))


async def test_of_very_many_due_lanes_each_gets_its_turn(store: Store) -> None:
    """Also behind more lanes of the same owner than a claim lists, in which it finds nothing that it knows."""
    node = await given_node(store)
    barren = [one_shot(NOW - MINUTE, queue=f"barren {number}", task="nobody's") for number in range(MANY_LANES)]
    runs = [one_shot(NOW - SECOND, queue=f"queue {number}") for number in range(100)]
    quiet = one_shot(owner="quiet")
    await acts.create(store, [*barren, *runs, quiet])
    first = await claims_of(store, node)
    assert quiet.id in ids(first.runs), "owners take turns"
    fresh = one_shot(NOW, queue="fresh")
    await acts.create(store, [fresh])
    taken = await claimed(store, node)
    assert fresh.id in ids(taken), "what has just become due is found at once"
    taken += first.runs
    for turn in range(3 * MANY_LANES // LANES_OF_OWNER):
        if len(taken) == len(runs) + 2:
            break
        taken += await claimed(store, node, now=NOW + turn * 2 * SECOND)
    assert sorted(ids(taken)) == sorted(ids([*runs, fresh, quiet]))


async def test_thousands_of_lanes_that_are_due_do_not_make_claims_slow(store: Store) -> None:
    node = await given_node(store)
    took = []
    few = isinstance(store, DynamoStore)  # an emulator takes long to create more
    for lanes in (100, 1100) if few else (1000, 11000):
        await acts.create(store, [one_shot(queue=f"{lanes} {number}", task="nobody's") for number in range(lanes)])
        took.append(min([await seconds_of_claim(store, node) for _ in range(2 if few else 20)]))
    some, twelve_times_as_many = took
    assert twelve_times_as_many < 5 * some


async def seconds_of_claim(store: Store, node: NodeId) -> float:
    began = time.perf_counter()
    await claims_of(store, node)
    return time.perf_counter() - began


async def test_a_paused_queue_does_not_take_the_places_of_others(store: Store) -> None:
    node = await given_node(store)
    for number in range(3):
        await acts.set_queue(store, QueueSettings(queue=f"queue {number}", paused=True))
    await acts.create(store, [one_shot(queue=f"queue {number}") for number in range(4)])
    claims = await claims_of(store, node)
    assert [run.spec.queue for run in claims.runs] == ["queue 3"]
    assert not claims.more
