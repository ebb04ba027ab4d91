"""Checks that failed runs are listed as dead letters until they are resolved, and that resolutions are consistent."""

from collections.abc import Collection, Iterator
from datetime import datetime

from horae.core.model import DISCARDED, Run, RunId, State
from horae.proof.checking.findings import Code, Violation, of_run, run_name


def judge_listing(run: Run, listed: Collection[RunId]) -> Iterator[Violation]:
    """Check that a run is listed as a dead letter exactly while it is failed and unresolved."""
    is_letter = run.state is State.FAILED and run.resolution is None
    if is_letter and run.id not in listed:
        yield of_run(Code.NOT_A_DEAD_LETTER, run, "it failed and is not resolved, but is not among the dead letters")
    elif run.id in listed and not is_letter:
        how = f"resolved as {run.resolution}" if run.state is State.FAILED else str(run.state)
        yield of_run(Code.BAD_RESOLUTION, run, f"it is among the dead letters although it is {how}")


def refers_to(run: Run) -> RunId | None:
    """The other run that is needed to judge the resolution of this one."""
    return run.requeue_of or (successor_of(run) if run.state is State.FAILED else None)


def successor_of(run: Run) -> RunId | None:
    """The run that replaced a dead letter, if one did."""
    return None if run.resolution in (None, DISCARDED) else RunId(run.resolution.removeprefix("run_"))


def judge_resolution(run: Run, other: Run | None, *, since: datetime | None) -> Iterator[Violation]:
    """Check that a requeued dead letter and its successor name each other; either may have been pruned."""
    if run.requeue_of is not None:
        yield from _judge_successor(run, other, since)
    elif (successor := successor_of(run)) is not None:
        if other is None:
            if since is None or (run.finished_at or run.created_at) >= since:
                detail = f"it was replaced by {run_name(successor)}, which does not exist"
                yield of_run(Code.BAD_RESOLUTION, run, detail)
        elif other.requeue_of != run.id:
            detail = f"it was replaced by {run_name(successor)}, which says it replaces {_name(other.requeue_of)}"
            yield of_run(Code.BAD_RESOLUTION, run, detail)


def _judge_successor(run: Run, letter: Run | None, since: datetime | None) -> Iterator[Violation]:
    assert run.requeue_of is not None
    if letter is None:
        if since is None:
            yield of_run(Code.BAD_RESOLUTION, run, f"it replaces {run_name(run.requeue_of)}, which does not exist")
    elif letter.state is not State.FAILED or successor_of(letter) != run.id:
        status = letter.state if letter.state is not State.FAILED else f"resolved as {letter.resolution}"
        detail = f"it replaces {run_name(letter.id)}, which is {status}: that is not resolved, or resolved twice"
        yield of_run(Code.BAD_RESOLUTION, run, detail)


def _name(run_id: RunId | None) -> str:
    return "nothing" if run_id is None else run_name(run_id)
