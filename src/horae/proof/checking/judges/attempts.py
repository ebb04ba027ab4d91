"""I8 and the retries of I2: attempts are numbered without a hole, each ends once, and none comes before its time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FINAL_STATUS, Asked, Recording, Span
from horae.proof.checking.history.recording import Definition, FinalAttempt, FinalRun
from horae.proof.checking.history.versions import versions
from horae.proof.checking.store.run_lives import PLAIN_ERRORS
from horae.proof.checking.wording import found, lasting

COUNTED = frozenset({"failed", "timeout"})  # released and lost ones use up no retry
OUTCOMES = COUNTED | {"succeeded", "lost", "released", "cancelled"}


def judge_attempts(recording: Recording) -> Iterator[Violation]:
    for asked in recording.asked.values():
        for run in asked.runs:
            ordered = sorted(run.attempts, key=lambda attempt: attempt.fence)
            yield from _numbers(run, ordered)
            yield from _budget(asked, run, ordered)
            yield from _starts_are_told(run, recording)
            yield from _delays(asked, run, recording)


def counted(attempts: Sequence[FinalAttempt]) -> int:
    return sum(attempt.outcome in COUNTED for attempt in attempts)


def allowed(asked: Asked) -> int:
    """How many attempts may count, by the most generous of the job's definitions."""
    return max(version.definition.max_retries for version in versions(asked)) + 1


def _numbers(run: FinalRun, attempts: Sequence[FinalAttempt]) -> Iterator[Violation]:
    expected = 1
    for attempt in attempts:
        if attempt.outcome not in OUTCOMES:
            yield found(Code.ATTEMPT_HOLE, run.run, f"attempt {attempt.number} ended as {attempt.outcome!r}")
        # One that was lost before its start was written down has no number of its own yet.
        if attempt.number != expected and not (attempt.started_at is None and attempt.number == expected - 1):
            detail = f"attempt {attempt.number} under fence {attempt.fence} should be attempt {expected}"
            yield found(Code.ATTEMPT_HOLE, run.run, detail)
        expected += attempt.outcome in COUNTED


def _budget(asked: Asked, run: FinalRun, attempts: Sequence[FinalAttempt]) -> Iterator[Violation]:
    if counted(attempts) > allowed(asked):
        detail = f"it failed {counted(attempts)} times; after {allowed(asked)} it had to be given up"
        yield found(Code.TRIED_TOO_OFTEN, run.run, detail)


def _starts_are_told(run: FinalRun, recording: Recording) -> Iterator[Violation]:
    """Each handler that started is an attempt with an end; that of a worker that died may have died untold.

    So may that of a worker whose lease ran out while the store did not answer: it gives back what, for the store, has
    not begun.
    """
    spans = recording.spans.get(run.run, [])
    following = [span.start.at for span in spans[1:]] + [recording.end_at]
    untold = [
        span
        for span, again_at in zip(spans, following, strict=False)
        if span.attempt is None and not _may_be_untold(span, again_at, recording)
    ]
    excused = run.crashes + (run.status not in FINAL_STATUS) + (run.status == "cancelled")
    if len(untold) > excused:
        start = untold[-1].start
        detail = f"a handler started as attempt {start.attempt} under fence {start.fence}, of which nothing is told"
        yield found(Code.ATTEMPT_HOLE, run.run, detail)
    for span in spans:
        if span.attempt is not None and span.attempt.number != span.start.attempt:
            detail = f"the handler under fence {span.start.fence} was told to be attempt {span.start.attempt}"
            yield found(Code.ATTEMPT_HOLE, run.run, f"{detail}, not {span.attempt.number}")


def _may_be_untold(span: Span, again_at: float, recording: Recording) -> bool:
    """Whether a lease can have run out between its start and the next; it may have been renewed a while before."""
    lease = recording.setup.lease
    return again_at - span.start.at > lease / 2 and recording.is_troubled(span.start.at, span.start.at + lease)


def _delays(asked: Asked, run: FinalRun, recording: Recording) -> Iterator[Violation]:
    """A retry comes after its delay, measured by the handlers themselves."""
    delay = min(version.definition.initial_seconds for version in versions(asked))
    for before, after in pairwise(recording.spans.get(run.run, [])):
        failed = before.attempt is not None and before.attempt.outcome == "failed"
        if not failed or before.end is None or before.end.good or after.start.attempt <= before.start.attempt:
            continue
        assert before.attempt is not None
        if before.attempt.error not in PLAIN_ERRORS:  # it may have chosen its own delay
            continue
        if len(versions(asked)) == 1:
            delay = shortest_delay(asked.definition, before.start.attempt)
        waited = after.start.at - before.end.at
        if waited < delay - recording.setup.clock_error:
            detail = f"it was tried again {lasting(waited)} after attempt {before.start.attempt} failed"
            yield found(Code.RETRIED_EARLY, run.run, f"{detail}, not after {lasting(delay)}")


def shortest_delay(definition: Definition, attempt: int) -> float:
    """How long to wait at least after a counted attempt; jitter only adds."""
    delay = min(definition.initial_seconds, definition.max_seconds)
    for _ in range(attempt - 1):
        delay = min(delay * definition.factor, definition.max_seconds)
    return delay
