"""Gates in a claim: which runs may be taken, which are contested, and which come next."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from horae.core.model import NodeId
from horae.core.values import Value


class GateState(Value, frozen=True, kw_only=True):
    """What a store knows of a gate, as a waiting run finds it."""

    holder: NodeId | None  # the node that holds the gate
    earlier_run: bool  # whether a live run is before it (by due_at, then id) that neither the node nor the claim has
    dead_letter: bool  # whether a dead letter before it blocks the gate


class Passage(StrEnum):
    """What a claim does with a run that has a gate."""

    TAKE = "take"
    NEXT = "next"  # it may pass, but the claim has taken enough of its gate
    CONTESTED = "contested"  # it is due and blocked: the worker decides what becomes of it
    LEAVE = "leave"


class ClaimGates:
    """The gates that one claim meets."""

    def __init__(
        self, node: NodeId, now: datetime, full: Collection[str], undecided: Collection[str], *, per_gate: int = 1
    ) -> None:
        """`per_gate` is how many runs of one gate the claim takes at most."""
        self.taken: dict[str, str] = {}  # gates of which the claim takes runs, with the id of the last
        self.next_at: datetime | None = None  # when the first of the runs wakes that come next
        self._node = node
        self._now = now
        self._full = frozenset(full)
        self._undecided = frozenset(undecided)
        self._per_gate = per_gate
        self._counts: Counter[str] = Counter()  # of the runs that it takes

    def is_full(self, gate: str) -> bool:
        """Whether the node holds enough of a gate: its state need not be read."""
        return gate in self._full

    def is_due(self, due_at: datetime, wake_at: datetime) -> bool:
        """Whether a run could start now: only then it can be contested."""
        return due_at <= self._now and wake_at <= self._now

    def admit(self, gate: str, ident: str, due_at: datetime, wake_at: datetime, state: GateState | None) -> Passage:
        """Decide on a run of a lane; `state` may be None when the gate is full."""
        if state is None or self.is_full(gate) or self._is_blocked(state):
            contested = self.is_due(due_at, wake_at) and gate not in self._undecided
            return Passage.CONTESTED if contested else Passage.LEAVE
        if self._counts[gate] < self._per_gate:
            self._counts[gate] += 1
            self.taken[gate] = ident
            return Passage.TAKE
        self.next_at = wake_at if self.next_at is None else min(self.next_at, wake_at)
        return Passage.NEXT

    def _is_blocked(self, state: GateState) -> bool:
        return state.holder not in (None, self._node) or state.earlier_run or state.dead_letter
