"""Checks a run by its row and its attempts: starts, end, attempt numbers, fences and retries."""

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from horae.core.decisions.results import MAX_CRASHES
from horae.core.lifecycle import FINAL
from horae.core.model import Attempt, NodeId, Outcome, Run, State, Trigger
from horae.proof.checking.findings import Code, Tolerance, Violation, at, duration, of_run

COUNTED = frozenset({Outcome.FAILED, Outcome.TIMEOUT})
ENDED_UNSTARTED = frozenset({State.CANCELLED, State.SKIPPED})

# Errors that can neither choose a retry delay nor forbid a retry; only classes of Horae or of users can.
PLAIN_ERRORS = frozenset({"crash"}) | {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
}


def judge_run(
    run: Run, attempts: Sequence[Attempt], tolerance: Tolerance, *, since: datetime | None = None
) -> Iterator[Violation]:
    """Yield the violations of a run; its attempts are judged only if none has been pruned."""
    ordered = sorted(attempts, key=lambda attempt: attempt.fence)
    yield from _starts(run, ordered, tolerance)
    yield from _end(run, ordered, tolerance)
    if since is None or run.created_at >= since:
        yield from _fences(run, ordered)
        yield from _numbers(run, ordered)
        yield from _retry_budget(run, ordered)
        yield from _spans(run, ordered, tolerance)


# --- starts -----------------------------------------------------------------------------------------------------------


def _starts(run: Run, attempts: Sequence[Attempt], tolerance: Tolerance) -> Iterator[Violation]:
    starts = [moment for moment in (run.first_started_at, run.started_at) if moment is not None]
    starts += [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    if not starts or _was_moved(run, attempts):
        return
    if (early := run.due_at - min(starts)) > tolerance.early:
        yield of_run(Code.EARLY_START, run, f"it started {duration(early)} before it was due, {at(run.due_at)}")
    elif (early := _before_wake_up(run, attempts)) > tolerance.early:
        code = Code.RETRIED_EARLY if run.attempt > 1 else Code.EARLY_START
        yield of_run(code, run, f"attempt {run.attempt} began {duration(early)} before {at(run.wake_at)}")
    if (latest := _latest_start(run)) is not None and min(starts) > latest:
        late = duration(min(starts) - run.due_at)
        yield of_run(Code.LATE_START, run, f"it started {late} late, too late for its start_within_seconds")


def _latest_start(run: Run) -> datetime | None:
    """The latest allowed start; None without a limit, or when the due time was changed after the run was late."""
    within = run.spec.policy.start_within
    unlimited = within is None or run.trigger is Trigger.REQUEUE or (run.one_shot and run.revision > 1)
    return None if unlimited or within is None else run.due_at + within


def _before_wake_up(run: Run, attempts: Sequence[Attempt]) -> timedelta:
    """How long before `wake_at` the last attempt started."""
    if run.started_at is None or not _holds_its_last_start(run, attempts):
        return timedelta()
    return run.wake_at - run.started_at


def _was_moved(run: Run, attempts: Sequence[Attempt]) -> bool:
    """Whether a one-shot may have been moved to a later time after an attempt that was lost or released."""
    return run.one_shot and run.revision > 1 and any(attempt.outcome not in COUNTED for attempt in attempts)


def _holds_its_last_start(run: Run, attempts: Sequence[Attempt]) -> bool:
    """Whether `wake_at` still is the time that allowed the last start."""
    if run.state in (State.RUNNING, State.SUCCEEDED):
        return True
    return run.state is State.FAILED and bool(attempts) and attempts[-1].outcome in COUNTED


# --- ends -------------------------------------------------------------------------------------------------------------


def _end(run: Run, attempts: Sequence[Attempt], tolerance: Tolerance) -> Iterator[Violation]:
    if (run.state in FINAL) != (run.finished_at is not None):
        has = "no end" if run.finished_at is None else f"an end, {at(run.finished_at)}"
        yield of_run(Code.MOVED_AFTER_END, run, f"it is {run.state} and has {has}")
    if run.resolution is not None and run.state is not State.FAILED:
        yield of_run(Code.BAD_RESOLUTION, run, f"it is {run.state}, so there is nothing to resolve")
    if run.state is State.SKIPPED and run.reason is None:
        yield of_run(Code.SKIPPED_WITHOUT_CAUSE, run, "it was skipped without a reason")
    if run.state is State.SUCCEEDED and run.started_at is None:
        yield of_run(Code.SUCCEEDED_UNSTARTED, run, "it succeeded, but was never started")
    if run.state in ENDED_UNSTARTED:
        yield from _never_started(run, attempts, tolerance)
    if run.finished_at is not None:
        yield from _nothing_after(run, attempts, run.finished_at, tolerance)
    elif any(attempt.outcome is Outcome.CANCELLED for attempt in attempts):
        detail = f"an attempt of it was cancelled, which is final, yet it is {run.state}"
        yield of_run(Code.MOVED_AFTER_END, run, detail)


def _never_started(run: Run, attempts: Sequence[Attempt], tolerance: Tolerance) -> Iterator[Violation]:
    began = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    if run.first_started_at is None and began:
        detail = f"it was {run.state} before any start, but an attempt began {at(min(began))}"
        yield of_run(Code.CANCELLED_YET_STARTED, run, detail)
    elif run.state is State.SKIPPED and any(attempt.outcome in COUNTED for attempt in attempts):
        yield of_run(Code.CANCELLED_YET_STARTED, run, "it was skipped although an attempt had failed")
    elif _is_after(run.first_started_at, run.finished_at, tolerance):
        assert run.first_started_at is not None
        detail = f"it was {run.state}, and started after that, {at(run.first_started_at)}"
        yield of_run(Code.CANCELLED_YET_STARTED, run, detail)


def _is_after(moment: datetime | None, end: datetime | None, tolerance: Tolerance) -> bool:
    return moment is not None and end is not None and moment > end + tolerance.skew


def _nothing_after(run: Run, attempts: Sequence[Attempt], end: datetime, tolerance: Tolerance) -> Iterator[Violation]:
    later = [attempt for attempt in attempts if attempt.ended_at > end + tolerance.skew]
    if later:
        detail = f"it ended {at(end)}, and attempt {later[0].number} after that, {at(later[0].ended_at)}"
        yield of_run(Code.MOVED_AFTER_END, run, detail)
    elif run.state not in ENDED_UNSTARTED and _is_after(run.started_at, end, tolerance):
        assert run.started_at is not None
        yield of_run(Code.MOVED_AFTER_END, run, f"it ended {at(end)} and started after that, {at(run.started_at)}")


# --- attempts ---------------------------------------------------------------------------------------------------------


def _fences(run: Run, attempts: Sequence[Attempt]) -> Iterator[Violation]:
    if not attempts:
        return
    last = attempts[-1].fence
    if run.state is State.SUCCEEDED and any(attempt.fence == run.fence for attempt in attempts):
        detail = f"it succeeded under fence {run.fence}, under which another result was written"
        yield of_run(Code.COMMITTED_TWICE, run, detail)
    elif last > run.fence:
        yield of_run(Code.FENCE_REUSED, run, f"an attempt had fence {last}, but the run has reached {run.fence} only")
    elif run.state in (State.CLAIMED, State.RUNNING) and last == run.fence:
        yield of_run(Code.FENCE_REUSED, run, f"fence {last} ended an attempt and is held by another")
    for before, after in pairwise(attempts):
        if before.fence == after.fence:
            yield of_run(Code.FENCE_REUSED, run, f"attempts {before.number} and {after.number} had fence {after.fence}")
        elif before.started_at is not None and after.started_at is not None and after.started_at < before.started_at:
            detail = f"fence {after.fence} began before fence {before.fence}, so fences do not grow"
            yield of_run(Code.FENCE_REUSED, run, detail)


def _numbers(run: Run, attempts: Sequence[Attempt]) -> Iterator[Violation]:
    """Counted attempts are numbered 1, 2, 3…; one that was lost or released passes its number to the next."""
    counted = 0
    for attempt in attempts:
        never_began = attempt.outcome is Outcome.LOST and attempt.number == counted
        if attempt.number != counted + 1 and not never_began:
            detail = f"after {counted} counted attempts came one with number {attempt.number}"
            yield of_run(Code.ATTEMPT_HOLE, run, detail)
            return
        counted += attempt.outcome in COUNTED
    expected = _expected_attempt(run, attempts, counted)
    if expected is None:
        yield of_run(Code.ATTEMPT_HOLE, run, "it failed, but has no failed attempt")
    elif run.attempt != expected:
        detail = f"it is {run.state} at attempt {run.attempt}, but its attempts lead to {expected}"
        yield of_run(Code.ATTEMPT_HOLE, run, detail)


def _expected_attempt(run: Run, attempts: Sequence[Attempt], counted: int) -> int | None:
    match run.state:
        case State.RUNNING | State.SUCCEEDED:
            return counted + 1
        case State.FAILED:
            return attempts[-1].number if attempts else None
        case State.CANCELLED if attempts and attempts[-1].outcome is Outcome.CANCELLED:
            return counted + 1
        case _:
            return counted


def _retry_budget(run: Run, attempts: Sequence[Attempt]) -> Iterator[Violation]:
    counted = sum(attempt.outcome in COUNTED for attempt in attempts)
    allowed = run.spec.policy.retry.max_retries + 1
    if counted > allowed:
        yield of_run(Code.TRIED_TOO_OFTEN, run, f"it failed {counted} times; after {allowed} it had to be given up")
    elif counted == allowed and run.state is not State.FAILED:
        detail = f"all its {allowed} attempts failed, but it is {run.state} instead of failed"
        yield of_run(Code.NOT_A_DEAD_LETTER, run, detail)
    elif run.crashes >= MAX_CRASHES and run.state not in FINAL:
        detail = f"{run.crashes} workers died of it, but it is {run.state} instead of failed"
        yield of_run(Code.NOT_A_DEAD_LETTER, run, detail)
    elif run.state is State.FAILED and counted < allowed and attempts and _is_plain(attempts[-1]):
        detail = f"it was given up after {counted} of {allowed} attempts, for an error that allows a retry"
        yield of_run(Code.GAVE_UP_EARLY, run, detail)


@dataclass(frozen=True, slots=True)
class _Span:
    """An attempt from its start to its end."""

    number: int
    node: NodeId | None
    start: datetime
    end: datetime | None
    record: Attempt | None = None  # None for an attempt that succeeded or is running


def _spans(run: Run, attempts: Sequence[Attempt], tolerance: Tolerance) -> Iterator[Violation]:
    """Attempts do not overlap unless a lease was lost, and retries wait for their delay."""
    spans = [
        _Span(attempt.number, attempt.node, attempt.started_at, attempt.ended_at, attempt)
        for attempt in attempts
        if attempt.started_at is not None
    ]
    if run.state in (State.RUNNING, State.SUCCEEDED) and run.started_at is not None:
        spans.append(_Span(run.attempt, run.node, run.started_at, run.finished_at))
    for before, after in pairwise(spans):
        assert before.record is not None
        assert before.end is not None
        if before.record.outcome is Outcome.LOST:
            continue
        gap = after.start - before.end + (timedelta() if before.node == after.node else tolerance.skew)
        if gap < timedelta():
            detail = f"attempt {after.number} began {duration(-gap)} before attempt {before.number} ended"
            yield of_run(Code.ATTEMPTS_OVERLAP, run, f"{detail}, whose lease was not lost")
        elif _is_plain(before.record):
            delay = run.spec.policy.retry.delay_after(before.number, 0.0)
            if gap < delay - tolerance.early:
                waited = f"{duration(gap)} after attempt {before.number} failed"
                yield of_run(Code.RETRIED_EARLY, run, f"it was retried {waited}, not after {duration(delay)}")


def _is_plain(attempt: Attempt) -> bool:
    """Whether it failed by an error that can neither choose the retry delay nor forbid a retry."""
    if attempt.outcome is Outcome.TIMEOUT:
        return True
    return attempt.outcome is Outcome.FAILED and attempt.error is not None and attempt.error.type in PLAIN_ERRORS
