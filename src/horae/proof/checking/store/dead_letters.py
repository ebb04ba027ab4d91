"""Dead letters: what failed is listed until somebody resolves it, and a resolution leads to a run that points back."""

from collections.abc import Callable, Collection, Iterator
from datetime import datetime

from horae.core.model import DISCARDED, Run, RunId, State
from horae.proof.checking.findings import Code, Violation, of_run, run_name

Find = Callable[[RunId], Run | None]


def judge_listing(run: Run, listed: Collection[RunId]) -> Iterator[Violation]:
    """A failed run is a dead letter exactly as long as nobody has resolved it."""
    is_letter = run.state is State.FAILED and run.resolution is None
    if is_letter and run.id not in listed:
        yield of_run(Code.NOT_A_DEAD_LETTER, run, "it failed and is not resolved, but is not among the dead letters")
    elif run.id in listed and not is_letter:
        how = f"resolved as {run.resolution}" if run.state is State.FAILED else str(run.state)
        yield of_run(Code.BAD_RESOLUTION, run, f"it is among the dead letters although it is {how}")


def refers_to(run: Run) -> RunId | None:
    """The other run that has to be looked up to judge the resolution of this one."""
    if run.requeue_of is not None:
        return run.requeue_of
    if run.state is State.FAILED and run.resolution not in (None, DISCARDED):
        return successor_of(run)
    return None


def successor_of(run: Run) -> RunId | None:
    """The run that replaced a dead letter, if one did."""
    return None if run.resolution in (None, DISCARDED) else RunId(run.resolution.removeprefix("run_"))


def judge_resolution(run: Run, other: Run | None, *, since: datetime | None) -> Iterator[Violation]:
    """A requeued dead letter and its successor name each other; either may be gone with old history."""
    if run.requeue_of is not None:
        yield from _judge_successor(run, other, since)
    elif (successor := successor_of(run)) is not None:
        if other is None:
            if since is None or (run.finished_at or run.created_at) >= since:
                yield of_run(
                    Code.BAD_RESOLUTION, run, f"it was replaced by {run_name(successor)}, which does not exist"
                )
        elif other.requeue_of != run.id:
            detail = f"it was replaced by {run_name(successor)}, which says it replaces {_name(other.requeue_of)}"
            yield of_run(Code.BAD_RESOLUTION, run, detail)


def _judge_successor(run: Run, letter: Run | None, since: datetime | None) -> Iterator[Violation]:
    assert run.requeue_of is not None
    if letter is None:
        if since is None:
            yield of_run(Code.BAD_RESOLUTION, run, f"it replaces {run_name(run.requeue_of)}, which does not exist")
    elif letter.state is not State.FAILED or successor_of(letter) != run.id:
        told = letter.state if letter.state is not State.FAILED else f"resolved as {letter.resolution}"
        detail = f"it replaces {run_name(letter.id)}, which is {told}: so that is not resolved, or twice"
        yield of_run(Code.BAD_RESOLUTION, run, detail)


def _name(run_id: RunId | None) -> str:
    return "nothing" if run_id is None else run_name(run_id)
