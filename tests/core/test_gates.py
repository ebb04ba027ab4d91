"""Which runs with a gate a claim takes, contests or leaves."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.decisions.gates import ClaimGates, GateState, Passage
from horae.core.model import NodeId

NOW = datetime(2027, 1, 31, 9, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
OURS, THEIRS = NodeId("aa" * 16), NodeId("bb" * 16)


def state(holder: NodeId | None = None, *, earlier_run: bool = False, dead_letter: bool = False) -> GateState:
    return GateState(holder=holder, earlier_run=earlier_run, dead_letter=dead_letter)


FREE = state()
BLOCKED = [state(THEIRS), state(earlier_run=True), state(OURS, earlier_run=True), state(dead_letter=True)]


def claim_of(*, full: tuple[str, ...] = (), undecided: tuple[str, ...] = (), per_gate: int = 1) -> ClaimGates:
    return ClaimGates(OURS, NOW, full, undecided, per_gate=per_gate)


@pytest.mark.parametrize("found", [FREE, state(OURS)], ids=["free", "ours"])
def test_the_first_run_of_a_gate_that_is_free_or_ours_is_taken(found: GateState) -> None:
    gates = claim_of()
    assert gates.admit("g", "1", LATER, LATER, found) is Passage.TAKE
    assert gates.taken == {"g": "1"}
    assert gates.next_at is None


def test_a_claim_takes_one_run_of_a_gate_and_knows_when_the_next_wakes() -> None:
    gates = claim_of()
    gates.admit("g", "1", NOW, NOW, FREE)
    assert gates.admit("g", "2", NOW, LATER, FREE) is Passage.NEXT
    assert gates.admit("g", "3", NOW, NOW, FREE) is Passage.NEXT
    assert gates.admit("h", "4", NOW, NOW, FREE) is Passage.TAKE
    assert gates.taken == {"g": "1", "h": "4"}
    assert gates.next_at == NOW


def test_a_claim_takes_as_many_runs_of_a_gate_as_it_may() -> None:
    gates = claim_of(per_gate=2)
    passages = [gates.admit("g", ident, LATER, LATER, FREE) for ident in ("1", "2", "3")]
    assert passages == [Passage.TAKE, Passage.TAKE, Passage.NEXT]
    assert gates.taken == {"g": "2"}, "the last"


@pytest.mark.parametrize("found", BLOCKED)
def test_a_blocked_run_is_contested_once_it_is_due(found: GateState) -> None:
    gates = claim_of()
    assert gates.admit("g", "1", NOW, NOW, found) is Passage.CONTESTED
    assert gates.admit("g", "2", LATER, NOW, found) is Passage.LEAVE
    assert gates.admit("g", "3", NOW, LATER, found) is Passage.LEAVE
    assert gates.taken == {}


def test_of_a_full_gate_nothing_is_taken_and_its_state_need_not_be_read() -> None:
    gates = claim_of(full=("g",))
    assert (gates.is_full("g"), gates.is_full("h")) == (True, False)
    assert gates.admit("g", "1", NOW, NOW, None) is Passage.CONTESTED
    assert gates.admit("g", "1", NOW, NOW, FREE) is Passage.CONTESTED
    assert gates.admit("g", "2", LATER, LATER, None) is Passage.LEAVE


def test_due_runs_of_undecided_gates_are_not_contested_again() -> None:
    gates = claim_of(undecided=("g",))
    assert gates.admit("g", "1", NOW, NOW, state(THEIRS)) is Passage.LEAVE
    assert gates.admit("g", "2", NOW, NOW, FREE) is Passage.TAKE
