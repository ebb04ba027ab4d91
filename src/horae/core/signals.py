"""Hints between nodes that something changed; they may be lost, doubled or late."""

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
