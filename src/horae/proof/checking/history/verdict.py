"""Runs every judge on a recorded history and collects the violations and figures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from horae.proof.checking.findings import Code, Violation, duration, found
from horae.proof.checking.history.coverage import Coverage, coverage_of
from horae.proof.checking.history.recording import Recording
from horae.proof.checking.history.versions import may_wait_for_other_jobs, runs_wait_for_each_other
from horae.proof.checking.judges.attempts import judge_attempts
from horae.proof.checking.judges.cancels import judge_cancels
from horae.proof.checking.judges.dead_letters import judge_dead_letters
from horae.proof.checking.judges.exclusive import judge_exclusive
from horae.proof.checking.judges.idempotency import judge_idempotency
from horae.proof.checking.judges.leases import judge_leases
from horae.proof.checking.judges.limits import judge_limits
from horae.proof.checking.judges.order import judge_order
from horae.proof.checking.judges.owners import judge_owners
from horae.proof.checking.judges.reads import judge_reads
from horae.proof.checking.judges.reporting import judge_reporting
from horae.proof.checking.judges.slots import evaluators, judge_slots
from horae.proof.checking.judges.start_windows import judge_start_windows
from horae.proof.checking.judges.starts import judge_starts

Judge = Callable[[Recording], Iterator[Violation]]

JUDGES: tuple[Judge, ...] = (
    judge_starts,
    judge_start_windows,
    judge_exclusive,
    judge_leases,
    judge_slots,
    judge_reads,
    judge_cancels,
    judge_attempts,
    judge_dead_letters,
    judge_order,
    judge_limits,
    judge_idempotency,
    judge_owners,
    judge_reporting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessSummary:
    """Seconds from due time to first start, of runs that no fault and no other run delayed."""

    starts: int
    p50: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryVerdict:
    """The violations and figures of a recorded history."""

    violations: list[Violation]
    coverage: Coverage
    calls: int
    jobs: int
    runs: int
    starts: int
    lateness: LatenessSummary | None
    evaluators: tuple[str, ...]  # that computed the slots


def judge_recording(recording: Recording) -> HistoryVerdict:
    """Judge a recorded history."""
    lateness = _lateness(recording)
    violations = [violation for judge in JUDGES for violation in judge(recording)]
    violations += _late_percentiles(recording, lateness)
    return HistoryVerdict(
        violations=list(dict.fromkeys(violations)),
        coverage=coverage_of(recording),
        calls=len(recording.calls),
        jobs=len(recording.requested),
        runs=len(recording.runs),
        starts=len(recording.starts),
        lateness=lateness,
        evaluators=tuple(sorted(evaluators(recording))),
    )


def _lateness(recording: Recording) -> LatenessSummary | None:
    late = sorted(_latenesses(recording))
    if not late:
        return None
    return LatenessSummary(starts=len(late), p50=_percentile(late, 0.50), p99=_percentile(late, 0.99), longest=late[-1])


def _latenesses(recording: Recording) -> Iterator[float]:
    for requested in recording.requested.values():
        if runs_wait_for_each_other(requested) or may_wait_for_other_jobs(requested, recording):
            continue
        for run in requested.runs:
            spans = recording.spans.get(run.run)
            if spans and run.trigger == "schedule":
                due, started_at = max(run.due_at, run.created_at), min(span.start.at for span in spans)
                if not recording.overlaps_fault(due - recording.setup.recovery, started_at):
                    yield started_at - due


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]


def _late_percentiles(recording: Recording, lateness: LatenessSummary | None) -> Iterator[Violation]:
    if lateness is None:
        return
    bounds = ("half", recording.setup.lateness_p50, lateness.p50), ("99 %", recording.setup.lateness_p99, lateness.p99)
    for which, allowed, measured in bounds:
        if allowed is not None and measured > allowed:
            late = f"up to {duration(measured)} late, not {duration(allowed)}"
            yield found(Code.LATE_START, "lateness", f"{which} of {lateness.starts} starts were {late}")
