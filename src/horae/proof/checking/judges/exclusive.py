"""I4: attempts of a run overlap only after a lost lease, fences grow, and one result counts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FINAL_STATUS, Recording, Span
from horae.proof.checking.history.recording import FinalRun, Report
from horae.proof.checking.wording import at, found, lasting

SKEW = 0.25  # seconds that the clock of a node may be off


def judge_exclusive(recording: Recording) -> Iterator[Violation]:
    times = Counter(run.run for run in recording.finals)
    for run, count in times.items():
        if count > 1:
            yield found(Code.COMMITTED_TWICE, run, f"it is there {count} times at the end")
    for final in recording.finals:
        yield from _one_result(final)
    for run, spans in recording.spans.items():
        yield from _one_start_each(run, spans)
        yield from _one_at_a_time(run, spans, recording)
        yield from _results_of_their_own(run, spans, recording)
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
            detail = f"its success came under fence {attempt.fence}, when {max(newest, run.fence)} had been given out"
            yield found(Code.STALE_RESULT_TAKEN, run.run, detail)


def _one_start_each(run: str, spans: Sequence[Span]) -> Iterator[Violation]:
    for before, after in pairwise(spans):
        if before.start.fence == after.start.fence:
            detail = f"handlers started {at(before.start.at)} and {at(after.start.at)} under fence {after.start.fence}"
            yield found(Code.FENCE_REUSED, run, detail)
        elif before.start.attempt > after.start.attempt:
            numbers = f"{before.start.attempt} under fence {before.start.fence}, then {after.start.attempt}"
            yield found(Code.FENCE_REUSED, run, f"its attempts go back: {numbers} under {after.start.fence}")


def _one_at_a_time(run: str, spans: Sequence[Span], recording: Recording) -> Iterator[Violation]:
    for before, after in pairwise(spans):
        if before.start.fence == after.start.fence or before.lost or before.left_alone:
            continue
        ended_at = before.ended_at
        if ended_at is not None and after.start.at < ended_at - recording.setup.clock_error:
            over = lasting(ended_at - after.start.at)
            detail = f"attempt {after.start.attempt} began {over} before attempt {before.start.attempt} ended"
            yield found(Code.ATTEMPTS_OVERLAP, run, f"{detail}, whose lease was not lost")


def _results_of_their_own(run: str, spans: Sequence[Span], recording: Recording) -> Iterator[Violation]:
    """A success under a fence came from the handler that started under it: not before that came to its end."""
    for span in spans:
        told = span.attempt
        if told is None or told.outcome != "succeeded" or told.ended_at is None or span.end is None:
            continue
        if told.ended_at < span.end.at - recording.setup.clock_error - SKEW:
            early = lasting(span.end.at - told.ended_at)
            detail = f"its success under fence {told.fence} is {early} older than the end of the handler under it"
            yield found(Code.STALE_RESULT_TAKEN, run, detail)


def _reports(run: str, recording: Recording) -> Iterator[Violation]:
    leases = recording.leases.get(run, [])
    taken: list[Report] = []
    for report in recording.reports[run]:
        if not report.accepted or _is_told_again(report, taken):
            continue
        newest = max((lease.fence for lease in leases if lease.at < report.at), default=0)
        if report.fence < newest:
            detail = f"a result under fence {report.fence} was taken {at(report.at)}, when {newest} had been given out"
            yield found(Code.STALE_RESULT_TAKEN, run, detail)
        if any(_is_of_no_use_after(report, earlier) for earlier in taken):
            fences = " and ".join(str(each.fence) for each in (*taken[-1:], report))
            yield found(Code.COMMITTED_TWICE, run, f"two results were taken, under the fences {fences}")
        taken.append(report)


def _is_told_again(report: Report, taken: Sequence[Report]) -> bool:
    """Whether it is the same result once more, of a worker that had no answer: what was taken stays taken."""
    return bool(report.status) and any((each.fence, each.status) == (report.fence, report.status) for each in taken)


def _is_of_no_use_after(report: Report, earlier: Report) -> bool:
    """Whether a result can only be void after another: under one fence, or by statuses, where those are known."""
    if report.status and earlier.status:
        return report.status in FINAL_STATUS and earlier.status in FINAL_STATUS
    return report.fence == earlier.fence
