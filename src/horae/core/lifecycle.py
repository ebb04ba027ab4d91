"""The state machine of a run: every change of a run's state is one of the moves in this table."""

from typing import Any

from horae.core.errors import IllegalMove
from horae.core.model import Run, State
from horae.core.values import FastStrEnum, replace


class Move(FastStrEnum):
    """What can happen to a run."""

    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    RETRY = "retry"
    GIVE_UP = "give_up"  # no retries are left, or the error is fatal
    GIVE_BACK = "give_back"  # its node returns it, or died
    POISON = "poison"  # too many workers died while they held it
    CANCEL = "cancel"
    SKIP = "skip"


MOVES: dict[tuple[State, Move], State] = {
    (State.SCHEDULED, Move.CLAIM): State.CLAIMED,
    (State.SCHEDULED, Move.CANCEL): State.CANCELLED,
    (State.SCHEDULED, Move.SKIP): State.SKIPPED,
    (State.CLAIMED, Move.START): State.RUNNING,
    (State.CLAIMED, Move.GIVE_BACK): State.SCHEDULED,
    (State.CLAIMED, Move.POISON): State.FAILED,
    (State.CLAIMED, Move.CANCEL): State.CANCELLED,
    (State.CLAIMED, Move.SKIP): State.SKIPPED,
    (State.RUNNING, Move.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Move.RETRY): State.RETRYING,
    (State.RUNNING, Move.GIVE_UP): State.FAILED,
    (State.RUNNING, Move.GIVE_BACK): State.SCHEDULED,
    (State.RUNNING, Move.POISON): State.FAILED,
    (State.RUNNING, Move.CANCEL): State.CANCELLED,
    (State.RETRYING, Move.CLAIM): State.CLAIMED,
    (State.RETRYING, Move.CANCEL): State.CANCELLED,
    (State.RETRYING, Move.SKIP): State.SKIPPED,
}

WAITING = frozenset(state for state, move in MOVES if move is Move.CLAIM)  # for a worker
HELD = frozenset(state for state, move in MOVES if move is Move.GIVE_BACK)  # by a worker
FINAL = frozenset(State) - {state for state, _ in MOVES}
ENDS_OF_WAITING = frozenset(after for (state, _), after in MOVES.items() if state in WAITING) & FINAL


def next_state(run: Run, move: Move) -> State:
    """The state of the run after the move; raises IllegalMove if its current state does not allow it."""
    try:
        return MOVES[run.state, move]
    except KeyError:
        raise IllegalMove(run.id, run.state, move) from None


def advance(run: Run, move: Move, **changes: Any) -> Run:
    """The run after the move, with other fields changed; raises IllegalMove if its current state does not allow it."""
    return replace(run, state=next_state(run, move), **changes)


def diagram() -> str:
    """The state machine as a Mermaid diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.SCHEDULED}"]
    lines += [f"    {before} --> {after}: {move}" for (before, move), after in MOVES.items()]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines)


def has_begun(run: Run) -> bool:
    """Whether an attempt of the run may have started, also one that its node could not report before it crashed."""
    unstarted = run.state in (State.SCHEDULED, State.CLAIMED)
    return not unstarted or run.attempt > 0 or run.crashes > 0 or run.first_started_at is not None
