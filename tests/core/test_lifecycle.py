"""The state machine: what may happen to a run, and nothing else."""

from datetime import UTC, datetime
from itertools import product

import pytest

from horae.core.errors import IllegalMove
from horae.core.lifecycle import FINAL, HELD, MOVES, WAITING, Move, advance, diagram
from horae.core.model import JobId, Run, RunId, Spec, State

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def run_in(state: State) -> Run:
    return Run(
        id=RunId("0" * 32),
        job_id=JobId("0" * 32),
        owner="local",
        created_by="local",
        spec=Spec(task="demo.echo"),
        due_at=NOON,
        wake_at=NOON,
        created_at=NOON,
        state=state,
    )


@pytest.mark.parametrize(("state", "move"), list(product(State, Move)))
def test_a_run_takes_exactly_the_steps_of_the_table(state: State, move: Move) -> None:
    if (state, move) in MOVES:
        assert advance(run_in(state), move).state is MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"is {state}; the move {move} is not possible"):
            advance(run_in(state), move)


def test_final_states_never_change() -> None:
    assert not [state for state, _ in MOVES if state in FINAL]
    assert {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED} == FINAL


def test_every_state_is_reached_and_every_other_one_leads_to_an_end() -> None:
    assert set(MOVES.values()) == set(State)
    for state in set(State) - FINAL:
        assert _ends_from(state), f"{state} leads nowhere"


def test_waiting_and_held_states_share_nothing() -> None:
    assert {State.SCHEDULED, State.RETRYING} == WAITING
    assert {State.CLAIMED, State.RUNNING} == HELD


def test_the_diagram_draws_every_step() -> None:
    drawing = diagram()
    assert all(f"{before} --> {after}: {move}" in drawing for (before, move), after in MOVES.items())


def _ends_from(state: State) -> bool:
    seen, frontier = {state}, [state]
    while frontier:
        here = frontier.pop()
        for (before, _), after in MOVES.items():
            if before is here and after not in seen:
                seen.add(after)
                frontier.append(after)
    return bool(seen & FINAL)
