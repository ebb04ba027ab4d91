"""What a waiting run waits for in its gate."""

from datetime import timedelta

from horae.core.decisions.results import start, succeed
from horae.core.model import OnFailure, Policy, Run
from horae.ports.store import Store
from tests import acts
from tests.acts import Resolution
from tests.conformance.builders import MINUTE, NOW, claimed, claims_of, failed, given_node, ids, one_shot, retried

BLOCK = Policy(on_failure=OnFailure.BLOCK)


def ordered(seconds: float, gate: str = "g") -> Run:
    return one_shot(NOW + timedelta(seconds=seconds), gate=gate, ordering_key="k", policy=BLOCK)


async def ahead(store: Store, run: Run, limit: int = 10) -> list[str]:
    return ids(await store.ahead_of(run, limit=limit))


async def test_without_a_gate_nobody_is_ahead(store: Store) -> None:
    first, second = one_shot(NOW - MINUTE), one_shot()
    await acts.create(store, [first, second])
    assert await store.ahead_of(second) == []


async def test_earlier_runs_of_the_gate_are_ahead_earliest_first(store: Store) -> None:
    line = [ordered(n) for n in range(4)]
    await acts.create(store, [*reversed(line), ordered(-9, gate="other")])
    assert await store.ahead_of(line[3]) == line[:3]
    assert await ahead(store, line[3], limit=2) == ids(line[:2])
    assert await ahead(store, line[0]) == []


async def test_a_run_that_waits_for_its_next_attempt_is_ahead(store: Store) -> None:
    first, second = ordered(-2), ordered(-1)
    await acts.create(store, [first, second])
    [taken] = await claimed(store, await given_node(store))
    await store.settle([retried(start(taken, NOW))])
    assert await ahead(store, second) == [first.id]


async def test_a_later_run_that_a_node_holds_is_ahead(store: Store) -> None:
    held, early = ordered(-1), ordered(-2)
    await acts.create(store, [held])
    [held] = await claimed(store, await given_node(store))
    await acts.create(store, [early])
    assert await store.ahead_of(early) == [held]


async def test_ended_runs_are_not_ahead_but_for_letters_that_block(store: Store) -> None:
    fine, letter, follower, later = ordered(-4), ordered(-3), ordered(-2), ordered(-1)
    await acts.create(store, [fine, letter, follower, later])
    node = await given_node(store)
    [taken] = await claimed(store, node)
    await store.settle([succeed(start(taken, NOW), None, NOW)])
    [taken] = await claimed(store, node)
    broken = failed(start(taken, NOW))
    await store.settle([broken])
    await claims_of(store, node, limit=0, free_gates=["g"])

    assert await store.ahead_of(follower) == [broken.run]
    assert await ahead(store, later) == [letter.id, follower.id]
    assert await ahead(store, later, limit=1) == [letter.id]
    assert await ahead(store, ordered(-9)) == [], "a letter blocks only what comes after it"

    assert await acts.resolve(store, [Resolution(run_id=letter.id)], now=NOW) == [True]
    assert await ahead(store, later) == [follower.id]
