"""I4: attempts of a run overlap only after a lost lease, fences grow, and only one result is accepted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation, at, duration, found
from horae.proof.checking.history.recording import FINAL_STATUS, HandlerSpan, Recording
from horae.proof.checking.history.records import FinalRun, ResultReport

SKEW = 0.25  # seconds that the clock of a node may be off


def judge_exclusive(recording: Recording) -> Iterator[Violation]:
    times = Counter(run.run for run in recording.final_runs)
    for run, count in times.items():
        if count > 1:
            yield found(Code.COMMITTED_TWICE, run, f"it is {count} times in the final state")
    for final in recording.final_runs:
        yield from _one_result(final)
    for run, spans in recording.spans.items():
        yield from _one_start_each(run, spans)
        yield from _one_at_a_time(run, spans, recording)
        yield from _results_follow_handlers(run, spans, recording)
    for run in recording.reports:
        yield from _reports(run, recording)


def _one_result(run: FinalRun) -> Iterator[Violation]:
    successes = [attempt for attempt in run.attempts if attempt.outcome == "succeeded"]
    if len(successes) > 1:
        fences = " and ".join(str(attempt.fence) for attempt in successes)
        yield found(Code.COMMITTED_TWICE, run.run, f"it succeeded {len(successes)} times, under the fences {fences}")
    fences_used = Counter(attempt.fence for attempt in run.attempts)
    for fence, count in fences_used.items():
        if count > 1:
            yield found(Code.COMMITTED_TWICE, run.run, f"{count} results were written under fence {fence}")
    newest = max((attempt.fence for attempt in run.attempts), default=0)
    if newest > run.fence:
        yield found(Code.FENCE_REUSED, run.run, f"its fence is {run.fence}, but an attempt has {newest}")
    for attempt in successes:
        if attempt.fence < max(newest, run.fence):
            granted = f"after fence {max(newest, run.fence)} had been granted"
            detail = f"its success came under fence {attempt.fence}, {granted}"
            yield found(Code.STALE_RESULT_TAKEN, run.run, detail)


def _one_start_each(run: str, spans: Sequence[HandlerSpan]) -> Iterator[Violation]:
    for before, after in pairwise(spans):
        if before.start.fence == after.start.fence:
            detail = f"handlers started {at(before.start.at)} and {at(after.start.at)} under fence {after.start.fence}"
            yield found(Code.FENCE_REUSED, run, detail)
        elif before.start.attempt > after.start.attempt:
            numbers = f"{before.start.attempt} under fence {before.start.fence}, then {after.start.attempt}"
            yield found(Code.FENCE_REUSED, run, f"its attempts go back: {numbers} under {after.start.fence}")


def _one_at_a_time(run: str, spans: Sequence[HandlerSpan], recording: Recording) -> Iterator[Violation]:
    for before, after in pairwise(spans):
        if before.start.fence == after.start.fence or before.lost or before.may_outlast_attempt:
            continue
        ended_at = before.ended_at
        if ended_at is not None and after.start.at < ended_at - recording.setup.clock_error:
            over = duration(ended_at - after.start.at)
            detail = f"attempt {after.start.attempt} began {over} before attempt {before.start.attempt} ended"
            yield found(Code.ATTEMPTS_OVERLAP, run, f"{detail}, whose lease was not lost")


def _results_follow_handlers(run: str, spans: Sequence[HandlerSpan], recording: Recording) -> Iterator[Violation]:
    """A success under a fence is not older than the end of the handler that started under it."""
    for span in spans:
        attempt = span.attempt
        if attempt is None or attempt.outcome != "succeeded" or attempt.ended_at is None or span.end is None:
            continue
        if attempt.ended_at < span.end.at - recording.setup.clock_error - SKEW:
            early = duration(span.end.at - attempt.ended_at)
            detail = f"its success under fence {attempt.fence} is {early} older than the end of the handler under it"
            yield found(Code.STALE_RESULT_TAKEN, run, detail)


def _reports(run: str, recording: Recording) -> Iterator[Violation]:
    leases = recording.leases.get(run, [])
    accepted: list[ResultReport] = []
    for report in recording.reports[run]:
        if not report.accepted or _is_repeated(report, accepted):
            continue
        newest = max((lease.fence for lease in leases if lease.at < report.at), default=0)
        if report.fence < newest:
            detail = f"a result under fence {report.fence} was accepted {at(report.at)}"
            yield found(Code.STALE_RESULT_TAKEN, run, f"{detail}, after fence {newest} had been granted")
        if any(_contradicts(report, earlier) for earlier in accepted):
            fences = " and ".join(str(each.fence) for each in (*accepted[-1:], report))
            yield found(Code.COMMITTED_TWICE, run, f"two results were accepted, under the fences {fences}")
        accepted.append(report)


def _is_repeated(report: ResultReport, accepted: Sequence[ResultReport]) -> bool:
    """Whether a worker that got no answer sent the same result again."""
    return bool(report.status) and any((each.fence, each.status) == (report.fence, report.status) for each in accepted)


def _contradicts(report: ResultReport, earlier: ResultReport) -> bool:
    """Whether a result cannot be accepted after another: both are final, or, if that is unknown, of one fence."""
    if report.status and earlier.status:
        return report.status in FINAL_STATUS and earlier.status in FINAL_STATUS
    return report.fence == earlier.fence
