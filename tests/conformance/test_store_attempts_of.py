"""The failed attempts of many runs at once."""

from horae.core.decisions.results import start
from horae.core.model import RunId
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    MINUTE,
    NOW,
    claimed,
    failed,
    given_ended,
    given_node,
    given_running,
    new_id,
    one_shot,
    retried,
)


async def test_each_run_has_its_attempts_oldest_first(store: Store) -> None:
    node = await given_node(store)
    twice, once = await given_running(store, one_shot(), one_shot(), node=node)
    [fine] = await given_ended(store, one_shot(), node=node)
    waiting = one_shot(NOW + 2 * MINUTE)
    await acts.create(store, [waiting])
    first = retried(twice)
    only = failed(once)
    assert await store.settle([first, only]) == [True, True]
    [again] = await claimed(store, node, now=NOW + MINUTE, until=NOW + MINUTE, limit=1)
    assert again.id == twice.id
    second = failed(start(again, NOW + MINUTE), NOW + MINUTE)
    assert await store.settle([second]) == [True]

    asked = [twice.id, fine.id, once.id, waiting.id, RunId(new_id())]
    found = await store.attempts(asked)

    assert found.keys() == {twice.id, once.id}
    assert list(found[twice.id]) == [first.attempt, second.attempt]
    assert list(found[once.id]) == [only.attempt]


async def test_as_many_as_one_likes_can_be_asked_for(store: Store) -> None:
    [run] = await given_running(store, one_shot())
    await store.settle([failed(run)])
    assert await store.attempts([]) == {}
    found = await store.attempts([*(RunId(new_id()) for _ in range(2000)), run.id])
    assert found.keys() == {run.id}
