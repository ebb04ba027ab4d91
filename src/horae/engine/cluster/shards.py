"""Divides the planner shards among the live nodes by rendezvous hash, so that no leader is needed."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from horae.core.model import SHARDS, Node, NodeId


def shards_of(node_id: NodeId, nodes: Sequence[Node], *, heard_since: datetime) -> list[int]:
    """Return the shards of a node among the planners whose heartbeat came since then.

    Nodes that disagree only do double work, so a silent one is left out early. To wait until it is declared dead could
    hand its shards to the next node that is killed, and leave them without a plan for longer than the horizon.
    """
    planners = frozenset(node.id for node in nodes if "planner" in node.roles and node.beat_at >= heard_since)
    return _share(node_id, planners | {node_id})


@lru_cache(64)
def _share(node_id: NodeId, planners: frozenset[NodeId]) -> list[int]:
    def owner(shard: int) -> NodeId:
        return max(planners, key=lambda planner: _score(planner, shard))

    return [shard for shard in range(SHARDS) if owner(shard) == node_id]


def _score(node_id: NodeId, shard: int) -> bytes:
    return hashlib.blake2b(f"{node_id}:{shard}".encode(), digest_size=8).digest()
