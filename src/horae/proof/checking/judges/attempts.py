"""I8 and I2 for retries: attempts are numbered without gaps, each ends once, and none starts before its delay."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation, duration, found
from horae.proof.checking.history.recording import FINAL_STATUS, HandlerSpan, Recording, RequestedJob
from horae.proof.checking.history.records import Definition, FinalAttempt, FinalRun
from horae.proof.checking.history.versions import versions
from horae.proof.checking.store.runs import PLAIN_ERRORS

COUNTED = frozenset({"failed", "timeout"})  # released and lost ones use up no retry
OUTCOMES = COUNTED | {"succeeded", "lost", "released", "cancelled"}


def judge_attempts(recording: Recording) -> Iterator[Violation]:
    for requested in recording.requested.values():
        for run in requested.runs:
            ordered = sorted(run.attempts, key=lambda attempt: attempt.fence)
            yield from _numbers(run, ordered)
            yield from _budget(requested, run, ordered)
            yield from _starts_have_attempts(run, recording)
            yield from _delays(requested, run, recording)


def counted(attempts: Sequence[FinalAttempt]) -> int:
    return sum(attempt.outcome in COUNTED for attempt in attempts)


def allowed(requested: RequestedJob) -> int:
    """Return how many attempts may fail, by the most generous definition of the job."""
    return max(version.definition.max_retries for version in versions(requested)) + 1


def _numbers(run: FinalRun, attempts: Sequence[FinalAttempt]) -> Iterator[Violation]:
    expected = 1
    for attempt in attempts:
        if attempt.outcome not in OUTCOMES:
            yield found(Code.ATTEMPT_HOLE, run.run, f"attempt {attempt.number} ended as {attempt.outcome!r}")
        # An attempt that was lost before its start was stored has no number of its own.
        if attempt.number != expected and not (attempt.started_at is None and attempt.number == expected - 1):
            detail = f"attempt {attempt.number} under fence {attempt.fence} should be attempt {expected}"
            yield found(Code.ATTEMPT_HOLE, run.run, detail)
        expected += attempt.outcome in COUNTED


def _budget(requested: RequestedJob, run: FinalRun, attempts: Sequence[FinalAttempt]) -> Iterator[Violation]:
    if counted(attempts) > allowed(requested):
        detail = f"it failed {counted(attempts)} times; after {allowed(requested)} it had to be given up"
        yield found(Code.TRIED_TOO_OFTEN, run.run, detail)


def _starts_have_attempts(run: FinalRun, recording: Recording) -> Iterator[Violation]:
    """Each started handler has an attempt in the final state, unless its worker died before it could store the start.

    A worker whose lease ran out while the store did not answer releases the run, which for the store never started.
    """
    spans = recording.spans.get(run.run, [])
    following = [span.start.at for span in spans[1:]] + [recording.end_at]
    missing = [
        span
        for span, again_at in zip(spans, following, strict=False)
        if span.attempt is None and not _may_be_unknown(span, again_at, recording)
    ]
    excused = run.crashes + (run.status not in FINAL_STATUS) + (run.status == "cancelled")
    if len(missing) > excused:
        start = missing[-1].start
        detail = f"a handler started as attempt {start.attempt} under fence {start.fence}, which is not stored"
        yield found(Code.ATTEMPT_HOLE, run.run, detail)
    for span in spans:
        if span.attempt is not None and span.attempt.number != span.start.attempt:
            detail = f"the handler under fence {span.start.fence} was started as attempt {span.start.attempt}"
            yield found(Code.ATTEMPT_HOLE, run.run, f"{detail}, not {span.attempt.number}")


def _may_be_unknown(span: HandlerSpan, again_at: float, recording: Recording) -> bool:
    """Whether the lease can have run out before the next start; it may have been renewed some time before."""
    lease = recording.setup.lease
    return again_at - span.start.at > lease / 2 and recording.overlaps_fault(span.start.at, span.start.at + lease)


def _delays(requested: RequestedJob, run: FinalRun, recording: Recording) -> Iterator[Violation]:
    """A retry waits for its delay, by the times that the handlers recorded."""
    delay = min(version.definition.initial_seconds for version in versions(requested))
    for before, after in pairwise(recording.spans.get(run.run, [])):
        failed = before.attempt is not None and before.attempt.outcome == "failed"
        if not failed or before.end is None or before.end.good or after.start.attempt <= before.start.attempt:
            continue
        assert before.attempt is not None
        if before.attempt.error not in PLAIN_ERRORS:  # it may have chosen another delay
            continue
        if len(versions(requested)) == 1:
            delay = minimum_delay(requested.definition, before.start.attempt)
        waited = after.start.at - before.end.at
        if waited < delay - recording.setup.clock_error:
            detail = f"it was retried {duration(waited)} after attempt {before.start.attempt} failed"
            yield found(Code.RETRIED_EARLY, run.run, f"{detail}, not after {duration(delay)}")


def minimum_delay(definition: Definition, attempt: int) -> float:
    """Return the shortest delay in seconds after a counted attempt; jitter only adds to it."""
    delay = min(definition.initial_seconds, definition.max_seconds)
    for _ in range(attempt - 1):
        delay = min(delay * definition.factor, definition.max_seconds)
    return delay
