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
    """One signal for each kind and node, with the earliest time; signals without a time are merged apart."""
    first: dict[tuple[Kind, NodeId | None, bool], Signal] = {}
    for signal in signals:
        earlier = first.setdefault((signal.kind, signal.node, signal.at is None), signal)
        if signal.at is not None and earlier.at is not None and signal.at < earlier.at:
            first[signal.kind, signal.node, False] = signal
    return list(first.values())
