"""Hints between nodes that something changed; they may be lost, doubled or late."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from horae.core.model import NodeId
from horae.core.values import Value


class Kind(StrEnum):
    """What a signal is about."""

    DUE = "due"  # runs to claim, from `at` on
    PLAN = "plan"  # jobs for planners
    STOP = "stop"  # a stop request for runs of `node`
    ANY = "any"  # something changed; look at everything


class Signal(Value, frozen=True, kw_only=True):
    """A hint that saves a wait; may be lost, doubled or late."""

    kind: Kind
    at: datetime | None = None
    node: NodeId | None = None


def merged(signals: Iterable[Signal]) -> list[Signal]:
    """Each hint once: of a kind and a node the earliest, where one without a time means at once."""
    earliest: dict[tuple[Kind, NodeId | None], Signal] = {}
    for signal in signals:
        place = (signal.kind, signal.node)
        other = earliest.get(place)
        if other is None or signal.at is None or (other.at is not None and signal.at < other.at):
            earliest[place] = signal
    return list(earliest.values())
