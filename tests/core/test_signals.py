"""Signals of one transaction are merged, and none that matters is lost."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.model import NodeId
from horae.core.signals import Kind, Signal, merged

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_ONCE = Signal(kind=Kind.DUE)
EARLY = Signal(kind=Kind.DUE, at=NOW)
LATE = Signal(kind=Kind.DUE, at=NOW + timedelta(minutes=1))


@pytest.mark.parametrize("given", [[EARLY, LATE], [LATE, EARLY], [LATE, EARLY, LATE]])
def test_the_earliest_time_of_a_kind_is_kept(given: list[Signal]) -> None:
    assert merged(given) == [EARLY]


@pytest.mark.parametrize("given", [[AT_ONCE, LATE], [LATE, AT_ONCE], [AT_ONCE, LATE, AT_ONCE]])
def test_a_signal_without_a_time_is_not_lost_behind_one_with_a_time(given: list[Signal]) -> None:
    assert set(merged(given)) == {AT_ONCE, LATE}


def test_kinds_and_nodes_are_kept_apart() -> None:
    given = [
        Signal(kind=Kind.PLAN, at=NOW),
        EARLY,
        Signal(kind=Kind.STOP, node=NodeId("a")),
        Signal(kind=Kind.STOP, node=NodeId("b")),
    ]
    assert merged(given * 2) == given
