"""Nodes: they register, beat, leave or are buried, and make their tasks known."""

from datetime import timedelta

from horae.core.decisions.results import give_back
from horae.core.model import NodeId
from horae.core.records import TaskSchema
from horae.core.values import replace
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import (
    DEAD_AFTER,
    MINUTE,
    NOW,
    ODD,
    SECOND,
    a_node,
    claims_of,
    given_claimed,
    given_node,
    new_id,
    one_shot,
)
from tests.conformance.conftest import Connect

TICK = timedelta(microseconds=1)


async def test_a_node_comes_back_as_it_registered(store: Store, connect: Connect) -> None:
    node = a_node(
        name=ODD,
        queues=("a", "b"),
        roles=("planner",),
        running=3,
        tasks={"a": "{}", "b": '{"x": 1}'},
        wall_ahead=-MINUTE - TICK,
    )
    await acts.register(store, node)
    assert await (await connect()).nodes() == [node]


async def test_registering_again_replaces_what_was_known(store: Store) -> None:
    node = a_node()
    await acts.register(store, node)
    again = replace(node, name="other", beat_at=NOW + SECOND, concurrency=5, tasks={"other": "{}"})
    await acts.register(store, again)
    assert await store.nodes() == [again]


async def test_tasks_stay_known_when_their_nodes_are_gone(store: Store) -> None:
    node = await given_node(store, tasks={"a": '{"old": 1}', "b": "{}"})
    await acts.unregister(store, node)
    await given_node(store, tasks={"a": '{"new": 1}'})
    assert await store.records(TaskSchema) == [
        TaskSchema(name="a", schema='{"new": 1}'),
        TaskSchema(name="b", schema="{}"),
    ]


async def test_a_beat_renews_the_lease_and_shows_who_lives(store: Store) -> None:
    mine = a_node()
    other, silent = a_node(beat_at=NOW + MINUTE - DEAD_AFTER), a_node(beat_at=NOW + MINUTE - DEAD_AFTER - SECOND)
    for node in (mine, other, silent):
        await acts.register(store, node)

    beat = await store.beat(mine.id, now=NOW + MINUTE, running=7, dead_after=DEAD_AFTER, wall_ahead=60 * MINUTE)

    assert beat is not None
    alive = {node.id: node for node in beat.nodes}
    renewed = replace(mine, beat_at=NOW + MINUTE, running=7, wall_ahead=60 * MINUTE)
    assert alive == {mine.id: renewed, other.id: other}
    assert {node.id for node in await store.nodes()} == {mine.id, other.id, silent.id}


async def test_the_dead_are_buried_and_cannot_come_back(store: Store, connect: Connect) -> None:
    dead, alive = await given_node(store), await given_node(store, beat_at=NOW + MINUTE)
    edge = await given_node(store, beat_at=NOW + MINUTE - DEAD_AFTER)
    other = await connect()

    assert await acts.bury(store, now=NOW + MINUTE, dead_after=DEAD_AFTER) == [dead]
    assert await acts.bury(other, now=NOW + MINUTE, dead_after=DEAD_AFTER) == []

    assert await store.beat(dead, now=NOW + MINUTE, running=0, dead_after=DEAD_AFTER) is None
    assert not (await claims_of(store, dead)).alive
    assert {node.id for node in await store.nodes()} == {alive, edge}


async def test_a_beat_of_an_unknown_node_is_refused(store: Store) -> None:
    assert await store.beat(NodeId(new_id()), now=NOW, running=0, dead_after=DEAD_AFTER) is None


async def test_a_node_that_leaves_is_known_no_more(store: Store) -> None:
    node = await given_node(store)
    [run] = await given_claimed(store, one_shot(), node=node)
    await store.settle([give_back(run, NOW)])
    await acts.unregister(store, node)
    await acts.unregister(store, node)
    assert await store.nodes() == []
    assert await store.orphans(limit=10) == []


async def test_what_a_node_leaves_behind_is_an_orphan(store: Store) -> None:
    node = await given_node(store)
    [run] = await given_claimed(store, one_shot(), node=node)
    await acts.unregister(store, node)
    assert await store.orphans(limit=10) == [run]


async def test_the_time_of_the_store_goes_on(store: Store) -> None:
    first = await store.time()
    second = await store.time()
    assert first.utcoffset() is not None
    assert not first.utcoffset()
    assert first <= second
