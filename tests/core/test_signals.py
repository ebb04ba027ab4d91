"""Signals of one commit are merged."""

from datetime import UTC, datetime, timedelta

from horae.core.model import NodeId
from horae.core.signals import Kind, Signal, merged

NOW = datetime(2027, 1, 31, 9, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)


def test_of_each_kind_the_earliest_time_is_kept() -> None:
    due, plan = Signal(kind=Kind.DUE, at=NOW), Signal(kind=Kind.PLAN, at=LATER)
    assert merged([Signal(kind=Kind.DUE, at=LATER), due, plan, Signal(kind=Kind.DUE, at=LATER)]) == [due, plan]


def test_a_signal_without_a_time_stands_beside_those_that_have_one() -> None:
    now, later = Signal(kind=Kind.DUE), Signal(kind=Kind.DUE, at=LATER)
    assert merged([later, now, now, later]) == [later, now]


def test_each_node_is_stopped_once() -> None:
    one, other = (Signal(kind=Kind.STOP, node=NodeId(ident * 16)) for ident in ("aa", "bb"))
    assert merged([one, other, one]) == [one, other]


def test_nothing_is_merged_to_nothing() -> None:
    assert merged([]) == []
