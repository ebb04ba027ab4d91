"""Runs that share a gate: one after another, in the order of their times."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.lifecycle import FINAL
from horae.core.model import OnFailure, Run, RunId, State
from horae.core.schedule.timestamps import rfc3339
from horae.proof.checking.findings import Code, Tolerance, Violation, run_name

MAX_GATES = 100_000  # gates that are remembered while a store is read through
NEAREST = 8  # runs of each that are compared with those before them


@dataclass(frozen=True, slots=True)
class Passage:
    """What the order in a gate depends on, of one run."""

    id: RunId
    gate: str
    due_at: datetime
    created_at: datetime
    started_at: datetime | None  # first
    finished_at: datetime | None
    settled_by: str | None  # the node whose clock wrote both times, if one did
    blocks: bool  # it failed, nobody has resolved it, and nothing may follow
    movable: bool  # a one-shot whose time was changed: nobody knows when it came to its place

    @classmethod
    def of(cls, run: Run) -> "Passage | None":
        if run.gate is None:
            return None
        own_clock = run.state in (State.SUCCEEDED, State.FAILED) and not run.crashes
        unresolved = run.state is State.FAILED and run.resolution is None
        return cls(
            id=run.id,
            gate=run.gate,
            due_at=run.due_at,
            created_at=run.created_at,
            started_at=run.first_started_at,
            finished_at=run.finished_at if run.state in FINAL else None,
            settled_by=run.node if own_clock else None,
            blocks=unresolved and run.spec.policy.on_failure is OnFailure.BLOCK and run.spec.ordering_key is not None,
            movable=run.one_shot and run.revision > 1,
        )

    @property
    def place(self) -> tuple[datetime, RunId]:
        return self.due_at, self.id


def judge_pair(one: Passage, other: Passage, tolerance: Tolerance) -> Violation | None:
    """What is wrong with the order of two runs of one gate, if anything."""
    first, second = sorted((one, other), key=lambda passage: passage.place)
    if second.started_at is None or not _came_in_time(first, second, tolerance):
        return None
    if first.blocks and first.finished_at is not None and second.started_at > first.finished_at + tolerance.skew:
        detail = f"it started at {rfc3339(second.started_at)} although {run_name(first.id)} failed before it and blocks"
        return Violation(code=Code.BLOCK_IGNORED, subject=run_name(second.id), detail=detail)
    if not _began_before_end(second.started_at, first, second, tolerance):
        return None
    end = "is not over" if first.finished_at is None else f"ended at {rfc3339(first.finished_at)} only"
    by_key = first.gate.startswith("key:")
    return Violation(
        code=Code.OUT_OF_ORDER if by_key else Code.OVERLAPPED,
        subject=run_name(second.id),
        detail=f"it started at {rfc3339(second.started_at)}, but {run_name(first.id)} comes before it and {end}",
    )


def _came_in_time(first: Passage, second: Passage, tolerance: Tolerance) -> bool:
    """Whether the earlier run was in the store before any worker can have claimed the later one.

    From then on a worker may hold that for as long as it waits for a slot, or behind others of its gate.
    """
    claimable_at = max(second.created_at, second.due_at - tolerance.lead)
    return not first.movable and first.created_at + tolerance.call <= claimable_at


def _began_before_end(began: datetime, first: Passage, second: Passage, tolerance: Tolerance) -> bool:
    if first.finished_at is None:
        return True
    same_clock = first.settled_by is not None and first.settled_by == second.settled_by
    return began < first.finished_at - (timedelta() if same_clock else tolerance.skew)


class GateJudge:
    """Looks at runs as they come, by due time in either direction, and compares each with the nearest of its gate.

    Of each gate the run with the earliest start is remembered as well: what it did not overtake, nobody did.
    """

    def __init__(self, tolerance: Tolerance, *, gates: int = MAX_GATES, nearest: int = NEAREST) -> None:
        self._tolerance = tolerance
        self._gates = gates
        self._nearest = nearest
        self._seen: OrderedDict[str, list[Passage]] = OrderedDict()

    def see(self, run: Run) -> Iterator[tuple[Violation, RunId, RunId]]:
        """What is wrong between this run and those before; with the two that it is about."""
        passage = Passage.of(run)
        if passage is None:
            return
        known = self._seen.setdefault(passage.gate, [])
        for other in known:
            if other.id != passage.id and (violation := judge_pair(other, passage, self._tolerance)) is not None:
                yield violation, other.id, passage.id
        self._remember(passage, known)

    def _remember(self, passage: Passage, known: list[Passage]) -> None:
        known.append(passage)
        if len(known) > self._nearest:
            earliest = min(known, key=_start)
            known.remove(known[1] if known[0] is earliest else known[0])
        self._seen.move_to_end(passage.gate)
        if len(self._seen) > self._gates:
            self._seen.popitem(last=False)


def judge_gates(runs: Iterable[Run], tolerance: Tolerance) -> Iterator[Violation]:
    """What is wrong with the order of runs that are known whole."""
    judge = GateJudge(tolerance, nearest=10 * NEAREST)
    for run in sorted(runs, key=lambda run: (run.due_at, run.id)):
        for violation, *_ in judge.see(run):
            yield violation


def _start(passage: Passage) -> tuple[bool, datetime]:
    return passage.started_at is None, passage.started_at or passage.due_at
