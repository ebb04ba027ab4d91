"""I1, I2, I3, I15, I18 and I19 by run id: every accepted run starts on time, and nothing else starts."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, at, duration, found
from horae.proof.checking.history.recording import FINAL_STATUS, HandlerSpan, Recording, RequestedJob
from horae.proof.checking.history.records import Action, Effect, FinalRun
from horae.proof.checking.history.versions import (
    due_times,
    jitter,
    may_wait_for_other_jobs,
    paused_since,
    runs_wait_for_each_other,
)


def judge_starts(recording: Recording) -> Iterator[Violation]:
    for requested in recording.requested.values():
        yield from _exists(requested, recording)
        for run in requested.runs:
            yield from _ran(requested, run, recording)
    yield from _no_other_starts(recording)


# --- I1: accepted runs exist and end


def _exists(requested: RequestedJob, recording: Recording) -> Iterator[Violation]:
    if recording.closed_at is None:
        return
    present = {run.run for run in requested.runs}
    for call in (*requested.create_calls, *requested.calls_of(Action.TRIGGER, Action.REQUEUE)):
        accepted = call.ok.run if call.ok else None
        if accepted is not None and accepted not in present:
            yield found(Code.LOST, accepted, f"it was accepted {at(call.done_at)}, but is missing in the final state")
    if requested.accepted and not requested.recurring and not requested.runs:
        detail = f"it was accepted {at(requested.accepted_at)}, but is missing in the final state"
        yield found(Code.LOST, requested.name, detail)


def _ran(requested: RequestedJob, run: FinalRun, recording: Recording) -> Iterator[Violation]:
    spans = recording.spans.get(run.run, [])
    if not spans and run.status in ("succeeded", "failed") and not run.crashes:
        yield found(Code.LOST, run.run, f"it is {run.status}, but no handler of it started")
    elif run.status == "succeeded" and not _last_attempt_succeeded(run, spans):
        yield found(Code.DISHONEST, run.run, "it is succeeded, but no handler of its last attempt succeeded")
    waits = run.status not in FINAL_STATUS and run.due_at <= recording.judged_to
    if waits and not may_wait_forever(requested, recording) and not _is_running(spans, recording):
        yield found(Code.UNFINISHED, run.run, f"it was due {at(run.due_at)}, and is {run.status} at the end")
    if spans:
        yield from _on_time(requested, run, min(span.start.at for span in spans), recording)


def _last_attempt_succeeded(run: FinalRun, spans: list[HandlerSpan]) -> bool:
    return any(span.start.fence == run.fence and span.end is not None and span.end.good for span in spans)


def _is_running(spans: list[HandlerSpan], recording: Recording) -> bool:
    """Whether its last handler started near the end of the history and has not ended."""
    return bool(spans) and spans[-1].end is None and spans[-1].start.at > recording.judged_to


def may_wait_forever(requested: RequestedJob, recording: Recording) -> bool:
    """Whether it may wait indefinitely: it is paused, or a failure blocks its ordering key."""
    if paused_since(requested) is not None:
        return True
    return (requested.owner, requested.definition.ordering_key) in recording.blocked_keys


# --- I2, I3, I18: on time


def _on_time(requested: RequestedJob, run: FinalRun, started_at: float, recording: Recording) -> Iterator[Violation]:
    error = recording.setup.clock_error
    due = _due(requested, run)
    if started_at < due - error:
        yield found(Code.EARLY_START, run.run, f"it started {duration(due - started_at)} before it was due, {at(due)}")
    if run.trigger != "schedule" or may_wait_for_other_jobs(requested, recording):
        return
    ready = max(due, min(run.due_at, due + jitter(requested)), run.created_at)
    deadline = recording.deadline(ready)
    if started_at > deadline + error and not _behind_another(requested, run, recording):
        late = duration(started_at - ready)
        if deadline > ready + recording.setup.lateness:
            detail = f"it started {late} late, {duration(started_at - deadline)} later than it may after a fault"
            yield found(Code.SLOW_RECOVERY, run.run, detail)
        else:
            yield found(Code.LATE_START, run.run, f"it started {late} after {at(ready)} although there was no fault")


def _due(requested: RequestedJob, run: FinalRun) -> float:
    """Its earliest start by the request where that defines it, not by what Horae stored."""
    if run.trigger == "schedule":
        if requested.recurring and run.slot is not None:
            return run.slot
        return min(due_times(requested), default=run.due_at)
    action = Action.REQUEUE if run.trigger == "requeue" else Action.TRIGGER
    called = [call.began_at for call in requested.calls_of(action, Action.BACKFILL)]
    return min(called, default=run.due_at)


def _behind_another(requested: RequestedJob, run: FinalRun, recording: Recording) -> bool:
    """Whether another run of a job whose runs may not overlap was ahead of it, or may have been after a fault."""
    if not runs_wait_for_each_other(requested):
        return False
    if recording.deadline(run.due_at) > run.due_at + recording.setup.lateness:
        return True
    return any(
        other.run != run.run and other.due_at <= run.due_at and (other.finished_at or recording.end_at) > run.due_at
        for other in requested.runs
    )


# --- I15: every start was requested


def _no_other_starts(recording: Recording) -> Iterator[Violation]:
    for start in recording.starts:
        requested = recording.requested.get(start.label)
        if requested is None or not requested.may_exist:
            why = "which was refused" if requested else "which was never requested"
            yield found(Code.UNASKED, start.run, f"a handler started {at(start.at)} for {start.label!r}, {why}")
        elif recording.closed_at is not None:
            yield from _start_has_run(requested, start, recording)


def _start_has_run(requested: RequestedJob, start: Effect, recording: Recording) -> Iterator[Violation]:
    run = recording.runs.get(start.run)
    if run is None:
        detail = f"a handler started {at(start.at)} for a run that is missing in the final state"
        yield found(Code.UNASKED, start.run, detail)
    elif run not in requested.runs:
        detail = f"a handler started for {start.label!r}, which is not the label of its job"
        yield found(Code.UNASKED, start.run, detail)
    elif start.at < requested.requested_at - recording.setup.clock_error:
        yield found(Code.UNASKED, start.run, f"a handler started {at(start.at)}, before it was requested")
