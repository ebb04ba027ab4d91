"""Claiming: who gets what, in which order, and when there is something again."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from horae.core.decisions.results import give_back, start, succeed
from horae.core.model import NodeId, Run, State
from horae.lookup import find_run
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DAY,
    DEAD_AFTER,
    MINUTE,
    NOW,
    SECOND,
    claimed,
    claims_of,
    given_claimed,
    given_node,
    given_running,
    ids,
    new_id,
    one_shot,
    retried,
    state_of,
)
from tests.conformance.conftest import Connect

TICK = timedelta(microseconds=1)


async def test_a_claimed_run_names_its_node_and_the_next_fence(store: Store) -> None:
    run = one_shot()
    await acts.create(store, [run])
    node = await given_node(store)

    [held] = await claimed(store, node)

    assert (held.id, held.state, held.node, held.fence, held.attempt) == (run.id, State.CLAIMED, node, 1, 0)
    assert await find_run(store, run.id, owner=None) == held


async def test_a_run_is_claimed_once(store: Store, connect: Connect) -> None:
    await acts.create(store, [one_shot()])
    mine, yours = await given_node(store), await given_node(store)
    other = await connect()
    assert len(await claimed(store, mine)) == 1
    assert await claimed(other, yours) == []
    assert await claimed(store, mine) == []


async def test_nodes_that_race_share_the_runs(store: Store, connect: Connect) -> None:
    runs = [one_shot() for _ in range(200)]
    await acts.create(store, runs)
    stores = [store, await connect(), await connect()]
    nodes = [await given_node(store) for _ in stores]

    async def drain(one: Store, node: NodeId) -> list[str]:
        found: list[str] = []
        while batch := await claimed(one, node, limit=7):
            found += ids(batch)
        return found

    taken = await asyncio.gather(*(drain(one, node) for one, node in zip(stores, nodes, strict=True)))

    assert sorted(each for part in taken for each in part) == sorted(ids(runs))


async def test_only_what_wakes_in_time_is_claimed(store: Store) -> None:
    early, exact, late = one_shot(NOW - DAY), one_shot(NOW + SECOND), one_shot(NOW + SECOND + TICK)
    await acts.create(store, [late, exact, early])
    node = await given_node(store)

    claims = await claims_of(store, node, until=NOW + SECOND)

    assert ids(claims.runs) == [early.id, exact.id]
    assert claims.next_at == late.wake_at


async def test_wake_at_counts_not_due_at(store: Store) -> None:
    await acts.create(store, [one_shot(NOW - DAY, wake_at=NOW + MINUTE)])
    node = await given_node(store)
    claims = await claims_of(store, node)
    assert (list(claims.runs), claims.next_at) == ([], NOW + MINUTE)


async def test_the_floor_hides_what_woke_before(store: Store) -> None:
    below, at = one_shot(NOW - SECOND - TICK), one_shot(NOW - SECOND)
    await acts.create(store, [below, at])
    node = await given_node(store)
    assert ids(await claimed(store, node, floor=NOW - SECOND)) == [at.id]
    assert ids(await claimed(store, node, floor=None)) == [below.id]


async def test_higher_priorities_come_first_then_earlier_ones(store: Store) -> None:
    runs = {
        (priority, queue, delay): one_shot(NOW - delay * SECOND, priority=priority, queue=queue)
        for priority in (-100, 0, 5, 100)
        for queue in ("a", "b")
        for delay in (3, 2, 1)
    }
    await acts.create(store, list(runs.values()))
    node = await given_node(store)

    first = await claimed(store, node, limit=7)
    rest = await claimed(store, node)

    order = [(run.spec.priority, run.wake_at) for run in [*first, *rest]]
    assert len(first) == 7
    assert order == sorted(order, key=lambda item: (-item[0], item[1]))
    assert len(order) == len(runs)


async def test_a_flood_in_one_queue_leaves_the_others_their_share(store: Store) -> None:
    flood = [one_shot(NOW - MINUTE, queue="flood") for _ in range(20)]
    some = [one_shot(NOW + number * SECOND / 10, queue="some") for number in range(4)]
    few = [one_shot(NOW, queue="few"), one_shot(NOW + SECOND, queue="few")]
    await acts.create(store, [*flood, *some, *few])
    node = await given_node(store)

    first = await claimed(store, node, until=NOW + SECOND, limit=6)
    second = await claimed(store, node, until=NOW + SECOND, limit=6)

    assert by_queue(first) == {"flood": 2, "some": 2, "few": 2}
    assert {run.id for run in first if run.spec.queue == "some"} == set(ids(some[:2])), "of a queue the earliest"
    assert by_queue(second) == {"flood": 4, "some": 2}, "what one does not need is for the others"


async def test_a_higher_priority_in_one_queue_goes_before_the_share_of_another(store: Store) -> None:
    urgent = [one_shot(NOW, queue="a", priority=1) for _ in range(3)]
    await acts.create(
        store, [*urgent, *(one_shot(NOW - MINUTE, queue=queue) for queue in ("a", "b") for _ in range(3))]
    )
    node = await given_node(store)

    assert set(ids(await claimed(store, node, limit=3))) == set(ids(urgent))
    assert by_queue(await claimed(store, node, limit=4)) == {"a": 2, "b": 2}


def by_queue(runs: Sequence[Run]) -> Counter[str]:
    return Counter(run.spec.queue for run in runs)


async def test_a_flood_of_one_owner_leaves_the_others_their_share(store: Store) -> None:
    ada, bob, eve = owners(3)
    flood = [one_shot(NOW - MINUTE, owner=eve) for _ in range(20)]
    some = [one_shot(NOW + number * SECOND / 10, owner=ada) for number in range(4)]
    few = [one_shot(NOW, owner=bob), one_shot(NOW + SECOND, owner=bob)]
    await acts.create(store, [*flood, *some, *few])
    node = await given_node(store)

    first = await claimed(store, node, until=NOW + SECOND, limit=6)
    second = await claimed(store, node, until=NOW + SECOND, limit=6)

    assert by_owner(first) == {eve: 2, ada: 2, bob: 2}
    assert {run.id for run in first if run.owner == ada} == set(ids(some[:2])), "of an owner the earliest"
    assert by_owner(second) == {eve: 4, ada: 2}, "what one does not need is for the others"


async def test_an_owner_with_many_queues_takes_no_more_turns_than_one_with_one(store: Store) -> None:
    quiet, flood = owners(2)
    crowd = [one_shot(NOW - MINUTE, owner=flood, queue=f"queue {number % 4}") for number in range(20)]
    await acts.create(store, [*crowd, *(one_shot(owner=quiet, queue="queue 0") for _ in range(10))])
    node = await given_node(store)

    taken = await claimed(store, node, limit=8)

    assert by_owner(taken) == {flood: 4, quiet: 4}
    assert by_queue([run for run in taken if run.owner == flood]) == {f"queue {number}": 1 for number in range(4)}


async def test_a_higher_priority_goes_before_the_share_of_another_owner(store: Store) -> None:
    ada, bob = owners(2)
    urgent = [one_shot(owner=ada, priority=1) for _ in range(3)]
    await acts.create(store, [*urgent, *(one_shot(NOW - MINUTE, owner=bob) for _ in range(3))])
    node = await given_node(store)
    assert set(ids(await claimed(store, node, limit=3))) == set(ids(urgent))


async def test_whatever_owners_there_are_all_is_claimed_once_the_oldest_of_each_first(store: Store) -> None:
    several = owners(8)
    counts = [60, 40, 7, 3, 1, 1, 1, 0]  # of many lanes none is counted to the end in one claim
    runs = [
        one_shot(NOW - number * TICK, owner=owner, queue=queue)
        for owner, count in zip(several, counts, strict=True)
        for queue in ("a", "b")
        for number in range(count)
    ]
    await acts.create(store, runs)
    node = await given_node(store)

    taken: list[Run] = []
    for _ in range(len(runs)):
        claims = await claims_of(store, node, limit=20)
        taken += claims.runs
        if not claims.more:
            break

    assert len(taken) == len(runs)
    assert set(ids(taken)) == set(ids(runs))
    for owner in several:
        for queue in ("a", "b"):
            mine = [run.wake_at for run in taken if (run.owner, run.spec.queue) == (owner, queue)]
            assert mine == sorted(mine)


async def test_what_many_owners_leave_of_a_large_claim_is_for_the_one_who_has_more(store: Store) -> None:
    *quiet, flood = owners(12)
    some = [one_shot(NOW, owner=owner) for owner in quiet for _ in range(2)]
    await acts.create(store, [*some, *(one_shot(NOW - MINUTE, owner=flood) for _ in range(250))])
    node = await given_node(store)

    claims = await claims_of(store, node, limit=200)

    assert by_owner(claims.runs) == {**dict.fromkeys(quiet, 2), flood: 178}
    assert claims.more


async def test_owners_who_have_more_than_there_is_room_for_have_about_as_much_of_a_large_claim(store: Store) -> None:
    *floods, quiet = owners(9)
    runs = [one_shot(NOW - MINUTE, owner=owner) for owner in floods for _ in range(40)]
    await acts.create(store, [*runs, *(one_shot(NOW, owner=quiet) for _ in range(3))])
    node = await given_node(store)

    taken = by_owner(await claimed(store, node, limit=203))

    assert taken.pop(quiet) == 3
    assert taken.total() == 200
    assert min(taken.values()) >= 0.8 * max(taken.values())


def by_owner(runs: Sequence[Run]) -> Counter[str]:
    return Counter(run.owner for run in runs)


def owners(count: int) -> list[str]:
    return [f"owner {number}" for number in range(count)]


async def test_only_the_queues_of_the_node_are_claimed(store: Store) -> None:
    mail, report = one_shot(queue="mail"), one_shot(queue="report")
    await acts.create(
        store, [mail, report, one_shot(NOW + SECOND, queue="report"), one_shot(NOW + MINUTE, queue="mail")]
    )
    node = await given_node(store)

    claims = await claims_of(store, node, queues=["mail", "nothing"])

    assert ids(claims.runs) == [mail.id]
    assert claims.next_at == NOW + MINUTE
    assert ids(await claimed(store, node)) == [report.id]


async def test_only_known_tasks_are_claimed(store: Store) -> None:
    unknown = [one_shot(NOW - SECOND, task="other") for _ in range(5)]
    known = one_shot()
    await acts.create(store, [*unknown, known])
    node = await given_node(store)
    assert ids(await claimed(store, node, limit=3)) == [known.id]
    assert await claimed(store, node, tasks=[]) == []
    assert len(await claimed(store, node, tasks=["demo.echo", "other"])) == 5


async def test_a_paused_one_shot_is_not_claimed(store: Store) -> None:
    await acts.create(store, [one_shot(paused=True), one_shot(NOW + MINUTE, paused=True)])
    node = await given_node(store)
    claims = await claims_of(store, node)
    assert (list(claims.runs), claims.next_at) == ([], None)


async def test_no_more_than_the_limit_is_claimed(store: Store) -> None:
    await acts.create(store, [one_shot() for _ in range(5)])
    node = await given_node(store)
    assert [len(await claimed(store, node, limit=limit)) for limit in (0, 2, 2, 2, 2)] == [0, 2, 2, 1, 0]


async def test_a_claim_tells_whether_it_ended_at_its_limit(store: Store) -> None:
    await acts.create(store, [one_shot() for _ in range(5)])
    node = await given_node(store)
    assert [(await claims_of(store, node, limit=limit)).more for limit in (0, 3, 9, 9)] == [False, True, False, False]


async def test_next_at_is_the_earliest_of_all_lanes(store: Store) -> None:
    times = [NOW + 5 * SECOND, NOW + 3 * SECOND, NOW + 4 * SECOND]
    runs = [one_shot(at, priority=priority, queue=f"q{priority}") for priority, at in enumerate(times)]
    await acts.create(store, runs)
    node = await given_node(store)
    assert (await claims_of(store, node)).next_at == NOW + 3 * SECOND
    assert (await claims_of(store, node, queues=["q0", "q2"])).next_at == NOW + 4 * SECOND
    assert (await claims_of(store, node, queues=["q9"])).next_at is None


async def test_the_fence_grows_with_every_claim(store: Store) -> None:
    [run] = await given_claimed(store, one_shot())
    node = await given_node(store)
    for fence in (2, 3, 4):
        assert await store.settle([give_back(run, NOW)]) == [True]
        [run] = await claimed(store, node)
        assert run.fence == fence


async def test_a_retried_run_is_claimed_again_when_it_wakes(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    await store.settle([retried(run)])
    node = await given_node(store)

    assert await claimed(store, node, until=NOW + MINUTE - TICK) == []
    [again] = await claimed(store, node, until=NOW + MINUTE)

    assert (again.state, again.fence, again.attempt, again.due_at) == (State.CLAIMED, 2, 1, run.due_at)
    assert again.error is not None
    assert start(again, NOW + MINUTE).attempt == 2


async def test_a_node_that_is_not_registered_gets_nothing(store: Store) -> None:
    run = one_shot()
    await acts.create(store, [run])
    claims = await claims_of(store, NodeId(new_id()))
    assert (claims.alive, list(claims.runs)) == (False, [])
    assert await state_of(store, run) is State.SCHEDULED


@pytest.mark.parametrize("leave", ["bury", "unregister"])
async def test_a_node_that_has_left_gets_nothing(store: Store, leave: str) -> None:
    node = await given_node(store)
    await acts.create(store, [one_shot()])
    if leave == "bury":
        assert await acts.bury(store, now=NOW + MINUTE, dead_after=DEAD_AFTER) == [node]
    else:
        await acts.unregister(store, node)
    assert not (await claims_of(store, node)).alive


async def test_a_claim_and_a_burial_exclude_each_other(store: Store, connect: Connect) -> None:
    """Whatever a node claims before its burial is found as an orphan afterwards; nothing slips between."""
    other = await connect()
    for _ in range(10):
        node = await given_node(store)
        run = one_shot()
        await acts.create(store, [run])
        claims, dead = await asyncio.gather(
            claims_of(store, node), acts.bury(other, now=NOW + MINUTE, dead_after=DEAD_AFTER)
        )
        assert dead == [node]
        orphans = ids(await store.orphans(limit=10))
        assert (run.id in orphans) == (run.id in ids(claims.runs))
        await store.settle([give_back(orphan, NOW) for orphan in await store.orphans(limit=10)])
        await claimed(store, await given_node(store, beat_at=NOW + DAY))


async def test_what_is_undecided_is_passed_over_until_its_gate_is_free(store: Store) -> None:
    mine, yours = await given_node(store), await given_node(store)
    await acts.create(store, [one_shot(NOW - SECOND, gate="g")])
    [ahead] = await claimed(store, yours)
    behind = one_shot(NOW, gate="g")
    await acts.create(store, [behind])
    assert ids([item.run for item in (await claims_of(store, mine)).contested]) == [behind.id]
    claims = await claims_of(store, mine, undecided_gates={"g"})
    assert (list(claims.runs), list(claims.contested)) == ([], [])
    await store.settle([succeed(start(ahead, NOW), None, NOW)])
    await claimed(store, yours, limit=0, free_gates=["g"])
    assert ids(await claimed(store, mine, undecided_gates={"g"})) == [behind.id]
