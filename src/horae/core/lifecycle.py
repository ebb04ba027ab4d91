"""The one state machine: every step in the life of a run, and nothing else may move one."""

from typing import Any

from horae.core.errors import IllegalMove
from horae.core.model import Run, State
from horae.core.values import Word, replace


class Event(Word):
    """What can happen to a run."""

    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    RETRY = "retry"
    GIVE_UP = "give_up"
    GIVE_BACK = "give_back"
    BURY = "bury"  # its workers died too often
    CANCEL = "cancel"
    SKIP = "skip"


MOVES: dict[tuple[State, Event], State] = {
    (State.SCHEDULED, Event.CLAIM): State.CLAIMED,
    (State.SCHEDULED, Event.CANCEL): State.CANCELLED,
    (State.SCHEDULED, Event.SKIP): State.SKIPPED,
    (State.CLAIMED, Event.START): State.RUNNING,
    (State.CLAIMED, Event.GIVE_BACK): State.SCHEDULED,
    (State.CLAIMED, Event.BURY): State.FAILED,
    (State.CLAIMED, Event.CANCEL): State.CANCELLED,
    (State.CLAIMED, Event.SKIP): State.SKIPPED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.RETRY): State.RETRYING,
    (State.RUNNING, Event.GIVE_UP): State.FAILED,
    (State.RUNNING, Event.GIVE_BACK): State.SCHEDULED,
    (State.RUNNING, Event.BURY): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    (State.RETRYING, Event.CLAIM): State.CLAIMED,
    (State.RETRYING, Event.CANCEL): State.CANCELLED,
    (State.RETRYING, Event.SKIP): State.SKIPPED,
}

FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED})
WAITING = frozenset(state for state, event in MOVES if event is Event.CLAIM)
HELD = frozenset(state for state, event in MOVES if event is Event.GIVE_BACK)


def after(run: Run, event: Event) -> State:
    """The state of the run after `event`; raises IllegalMove where its state does not allow it."""
    try:
        return MOVES[run.state, event]
    except KeyError:
        raise IllegalMove(run.id, run.state, event) from None


def advance(run: Run, event: Event, **changes: Any) -> Run:
    """The run after `event`; raises IllegalMove where its state does not allow it."""
    return replace(run, state=after(run, event), **changes)


def diagram() -> str:
    """The state machine as a Mermaid diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.SCHEDULED}"]
    lines += [f"    {before} --> {after}: {event}" for (before, event), after in MOVES.items()]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines)
