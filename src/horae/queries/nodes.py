"""Tells which nodes there are, and which of them are alive."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from horae.core.model import Node
from horae.ports.clock import Clock
from horae.ports.reader import Reader


@dataclass(frozen=True, slots=True)
class NodeState:
    """A registered node, and whether its heartbeats arrive."""

    node: Node
    alive: bool


class NodeQueries:
    """Reads the registered nodes."""

    def __init__(self, store: Reader, clock: Clock, *, dead_after: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._dead_after = dead_after

    async def nodes(self, role: str | None) -> Sequence[NodeState]:
        """Return the nodes with a role, or all of them; a dead one stays until others have noticed."""
        since = self._clock.now() - self._dead_after
        found = [node for node in await self._store.nodes() if role is None or role in node.roles]
        return [NodeState(node, node.beat_at > since) for node in sorted(found, key=lambda node: node.name)]
