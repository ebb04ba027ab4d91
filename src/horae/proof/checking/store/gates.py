"""Checks that runs which share a gate run one after another, in the order of their due times."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.decisions.release import is_key_gate
from horae.core.lifecycle import FINAL
from horae.core.model import OnFailure, Run, RunId, State
from horae.proof.checking.findings import Code, Tolerance, Violation, at, run_name

MAX_GATES = 100_000  # gates that are remembered while a store is read
NEAREST = 8  # runs per gate that are compared with each other


@dataclass(frozen=True, slots=True)
class GatedRun:
    """What the order of a run in its gate depends on."""

    id: RunId
    gate: str
    due_at: datetime
    created_at: datetime
    started_at: datetime | None  # first
    finished_at: datetime | None
    settled_by: str | None  # the node whose clock gave both times, if one did
    blocks: bool  # it failed, is not resolved, and blocks the runs behind it
    movable: bool  # a one-shot whose time was changed: its place in the order is not known

    @classmethod
    def of(cls, run: Run) -> "GatedRun | None":
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


def judge_pair(one: GatedRun, other: GatedRun, tolerance: Tolerance) -> Violation | None:
    """Return the violation in the order of two runs of one gate, if there is one."""
    first, second = sorted((one, other), key=lambda gated: gated.place)
    if second.started_at is None or not _was_stored_in_time(first, second, tolerance):
        return None
    if first.blocks and first.finished_at is not None and second.started_at > first.finished_at + tolerance.skew:
        detail = f"it started {at(second.started_at)} although {run_name(first.id)} failed before it and blocks"
        return Violation(code=Code.BLOCK_IGNORED, subject=run_name(second.id), detail=detail)
    if not _started_before_end(second.started_at, first, second, tolerance):
        return None
    end = "has not ended" if first.finished_at is None else f"ended {at(first.finished_at)} only"
    return Violation(
        code=Code.OUT_OF_ORDER if is_key_gate(first.gate) else Code.OVERLAPPED,
        subject=run_name(second.id),
        detail=f"it started {at(second.started_at)}, but {run_name(first.id)} comes before it and {end}",
    )


def _was_stored_in_time(first: GatedRun, second: GatedRun, tolerance: Tolerance) -> bool:
    """Whether the earlier run was stored before a worker can have claimed the later one.

    A claimed run may be held for long: until the worker has capacity, or while others of its gate run.
    """
    claimable_at = max(second.created_at, second.due_at - tolerance.lead)
    return not first.movable and first.created_at + tolerance.call <= claimable_at


def _started_before_end(began: datetime, first: GatedRun, second: GatedRun, tolerance: Tolerance) -> bool:
    if first.finished_at is None:
        return True
    same_clock = first.settled_by is not None and first.settled_by == second.settled_by
    return began < first.finished_at - (timedelta() if same_clock else tolerance.skew)


class GateJudge:
    """Compares each run with the nearest others of its gate; runs come sorted by due time, in either direction.

    The run with the earliest start of each gate is kept as well: what it did not overtake, no other run did.
    """

    def __init__(self, tolerance: Tolerance, *, nearest: int = NEAREST) -> None:
        self._tolerance = tolerance
        self._nearest = nearest
        self._seen: OrderedDict[str, list[GatedRun]] = OrderedDict()

    def add(self, run: Run) -> Iterator[tuple[Violation, RunId, RunId]]:
        """Yield each violation between this run and earlier ones, with the ids of the two runs."""
        gated = GatedRun.of(run)
        if gated is None:
            return
        known = self._seen.setdefault(gated.gate, [])
        for other in known:
            if other.id != gated.id and (violation := judge_pair(other, gated, self._tolerance)) is not None:
                yield violation, other.id, gated.id
        self._remember(gated, known)

    def _remember(self, gated: GatedRun, known: list[GatedRun]) -> None:
        known.append(gated)
        if len(known) > self._nearest:
            earliest = min(known, key=_start)
            known.remove(known[1] if known[0] is earliest else known[0])
        self._seen.move_to_end(gated.gate)
        if len(self._seen) > MAX_GATES:
            self._seen.popitem(last=False)


def judge_gates(runs: Iterable[Run], tolerance: Tolerance) -> Iterator[Violation]:
    """Yield every violation in the order of runs that are all in memory."""
    judge = GateJudge(tolerance, nearest=10 * NEAREST)
    for run in sorted(runs, key=lambda run: (run.due_at, run.id)):
        for violation, *_ in judge.add(run):
            yield violation


def _start(gated: GatedRun) -> tuple[bool, datetime]:
    return gated.started_at is None, gated.started_at or gated.due_at
