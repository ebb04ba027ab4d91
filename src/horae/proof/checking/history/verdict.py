"""The judgement of a recorded history: every judge heard, and how much there was to judge."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.coverage import Proof, proof
from horae.proof.checking.history.recorded import Recording
from horae.proof.checking.history.versions import in_line, may_wait
from horae.proof.checking.judges.attempts import judge_attempts
from horae.proof.checking.judges.cancels import judge_cancels
from horae.proof.checking.judges.dead_letters import judge_giving_up
from horae.proof.checking.judges.exclusive import judge_exclusive
from horae.proof.checking.judges.leases import judge_leases
from horae.proof.checking.judges.limits import judge_limits
from horae.proof.checking.judges.order import judge_order
from horae.proof.checking.judges.owners import judge_owners
from horae.proof.checking.judges.reads import judge_reads
from horae.proof.checking.judges.repeats import judge_repeats
from horae.proof.checking.judges.reporting import judge_honesty
from horae.proof.checking.judges.slots import evaluators, judge_accounts
from horae.proof.checking.judges.start_windows import judge_windows
from horae.proof.checking.judges.starts import judge_starts
from horae.proof.checking.wording import found, lasting

Judge = Callable[[Recording], Iterator[Violation]]

JUDGES: tuple[Judge, ...] = (
    judge_starts,
    judge_windows,
    judge_exclusive,
    judge_leases,
    judge_accounts,
    judge_reads,
    judge_cancels,
    judge_attempts,
    judge_giving_up,
    judge_order,
    judge_limits,
    judge_repeats,
    judge_owners,
    judge_honesty,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Seconds from due times to first starts, where nothing was broken and nothing was in the way."""

    starts: int
    p50: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a recorded history shows."""

    violations: list[Violation]
    proof: Proof
    calls: int
    jobs: int
    runs: int
    starts: int
    lateness: Lateness | None
    evaluators: tuple[str, ...]  # whose word the slots were judged by


def judge_recording(recording: Recording) -> Verdict:
    """Hear every judge."""
    lateness = _lateness(recording)
    violations = [violation for judge in JUDGES for violation in judge(recording)]
    violations += _too_late_on_the_whole(recording, lateness)
    return Verdict(
        violations=list(dict.fromkeys(violations)),
        proof=proof(recording),
        calls=len(recording.calls),
        jobs=len(recording.asked),
        runs=len(recording.runs),
        starts=len(recording.starts),
        lateness=lateness,
        evaluators=tuple(sorted(evaluators(recording))),
    )


def _lateness(recording: Recording) -> Lateness | None:
    late = sorted(_latenesses(recording))
    if not late:
        return None
    return Lateness(starts=len(late), p50=_percentile(late, 0.50), p99=_percentile(late, 0.99), longest=late[-1])


def _latenesses(recording: Recording) -> Iterator[float]:
    for asked in recording.asked.values():
        if in_line(asked) or may_wait(asked, recording):
            continue
        for run in asked.runs:
            spans = recording.spans.get(run.run)
            if spans and run.trigger == "schedule":
                due, started_at = max(run.due_at, run.created_at), min(span.start.at for span in spans)
                if not recording.is_troubled(due - recording.setup.recovery, started_at):
                    yield started_at - due


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]


def _too_late_on_the_whole(recording: Recording, lateness: Lateness | None) -> Iterator[Violation]:
    if lateness is None:
        return
    bounds = ("half", recording.setup.lateness_p50, lateness.p50), ("99 %", recording.setup.lateness_p99, lateness.p99)
    for which, promised, measured in bounds:
        if promised is not None and measured > promised:
            detail = f"{which} of {lateness.starts} starts were up to {lasting(measured)} late, not {lasting(promised)}"
            yield found(Code.LATE_START, "lateness", detail)
