"""Leases and shards: whether a node may act, and for which jobs it plans."""

from collections import Counter
from datetime import timedelta

from horae.core.model import SHARDS, Node, NodeId
from horae.core.values import replace
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.cluster.shards import shards_of
from tests.clocks import ManualClock
from tests.engine.system import START


def planner(number: int, roles: tuple[str, ...] = ("planner",)) -> Node:
    return Node(
        id=NodeId(f"{number:032x}"), name=f"n{number}", roles=roles, version="1", started_at=START, beat_at=START
    )


def shares(node: NodeId, nodes: list[Node]) -> list[int]:
    """Return the shards of a node when all nodes have just sent a heartbeat."""
    return shards_of(node, nodes, heard_since=START)


def test_a_planner_that_is_missed_is_counted_out_before_it_is_buried() -> None:
    silent, planning = planner(1), planner(2)
    since = START + Timing().missed_after
    heard = replace(planning, beat_at=since)
    assert shards_of(heard.id, [silent, heard], heard_since=since) == list(range(SHARDS))
    assert Timing().missed_after < Timing().dead_after


def test_every_shard_belongs_to_exactly_one_of_the_live_planners() -> None:
    nodes = [planner(n) for n in range(5)]
    owners = Counter(shard for node in nodes for shard in shares(node.id, nodes))
    assert owners == Counter(range(SHARDS))


def test_a_planner_that_leaves_moves_its_own_shards_only() -> None:
    nodes = [planner(n) for n in range(5)]
    staying, leaving = nodes[:4], nodes[4]
    before = {node.id: set(shares(node.id, nodes)) for node in staying}
    after = {node.id: set(shares(node.id, staying)) for node in staying}
    assert all(before[node.id] <= after[node.id] for node in staying)
    assert set().union(*(after[n.id] - before[n.id] for n in staying)) == set(shares(leaving.id, nodes))


def test_nodes_that_do_not_plan_own_no_shards() -> None:
    nodes = [planner(1), planner(2, roles=("worker",)), planner(3, roles=("api",))]
    assert shares(nodes[0].id, nodes) == list(range(SHARDS))


def test_a_node_that_sees_nobody_plans_everything() -> None:
    assert shares(NodeId("f" * 32), []) == list(range(SHARDS))


def test_a_lease_is_unsafe_before_it_is_expired() -> None:
    clock = ManualClock(START)
    lease = Lease(clock, Timing())
    lease.renew(clock.elapsed())
    clock.advance(seconds=12.9)
    assert (lease.safe, lease.expired) == (True, False)
    clock.advance(seconds=0.2)
    assert (lease.safe, lease.expired) == (False, False)
    clock.advance(seconds=2)
    assert (lease.safe, lease.expired) == (False, True)


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    clock = ManualClock(START)
    lease = Lease(clock, Timing())
    asked_at = clock.elapsed()
    clock.advance(seconds=20)
    lease.renew(asked_at)
    assert lease.age == timedelta(seconds=20)
    assert not lease.safe


def test_a_buried_node_has_no_lease_until_it_joins_again() -> None:
    clock = ManualClock(START)
    lease = Lease(clock, Timing())
    lease.lost = True
    assert (lease.safe, lease.expired) == (False, True)
    lease.renew(clock.elapsed())
    assert lease.safe
