"""I1, I2, I3, I15, I18 and I19 by run id: whatever was accepted started, on time, and nothing else did."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FINAL_STATUS, Asked, Recording, Span
from horae.proof.checking.history.recording import Action, Effect, FinalRun
from horae.proof.checking.history.versions import due_times, in_line, jitter, may_wait, paused_since
from horae.proof.checking.wording import at, found, lasting, name


def judge_starts(recording: Recording) -> Iterator[Violation]:
    for asked in recording.asked.values():
        yield from _kept(asked, recording)
        for run in asked.runs:
            yield from _lived(asked, run, recording)
    yield from _nothing_else(recording)


# --- I1: durable


def _kept(asked: Asked, recording: Recording) -> Iterator[Violation]:
    if recording.closed_at is None:
        return
    present = {run.run for run in asked.runs}
    for call in (*asked.creates, *asked.of(Action.TRIGGER, Action.REQUEUE)):
        accepted = call.ok.run if call.ok else None
        if accepted is not None and accepted not in present:
            yield found(Code.LOST, accepted, f"it was accepted {at(call.done_at)}, and is not there at the end")
    if asked.accepted and not asked.recurring and not asked.runs:
        yield found(Code.LOST, name(asked), f"it was accepted {at(asked.accepted_at)}, and is not there at the end")


def _lived(asked: Asked, run: FinalRun, recording: Recording) -> Iterator[Violation]:
    spans = recording.spans.get(run.run, [])
    if not spans and run.status in ("succeeded", "failed") and not run.crashes:
        yield found(Code.LOST, run.run, f"it is {run.status}, but no handler of it ever started")
    elif run.status == "succeeded" and not _came_to_an_end(run, spans):
        yield found(Code.DISHONEST, run.run, "it is succeeded, but no handler of its last attempt came to a good end")
    waits = run.status not in FINAL_STATUS and run.due_at <= recording.judged_to
    if waits and not waits_by_right(asked, recording) and not _is_at_work(spans, recording):
        yield found(Code.UNFINISHED, run.run, f"it was due {at(run.due_at)}, and is {run.status} at the end")
    if spans:
        yield from _in_time(asked, run, min(span.start.at for span in spans), recording)


def _came_to_an_end(run: FinalRun, spans: list[Span]) -> bool:
    return any(span.start.fence == run.fence and span.end is not None and span.end.good for span in spans)


def _is_at_work(spans: list[Span], recording: Recording) -> bool:
    """Whether a handler started late in the history, and has not ended."""
    return bool(spans) and spans[-1].end is None and spans[-1].start.at > recording.judged_to


def waits_by_right(asked: Asked, recording: Recording) -> bool:
    """Whether it may wait for ever: it is paused, or behind a failure that blocks its ordering key."""
    if paused_since(asked) is not None:
        return True
    return (asked.owner, asked.definition.ordering_key) in recording.blocked_keys


# --- I2, I3, I18: on time


def _in_time(asked: Asked, run: FinalRun, started_at: float, recording: Recording) -> Iterator[Violation]:
    error = recording.setup.clock_error
    due = _due(asked, run)
    if started_at < due - error:
        yield found(Code.EARLY_START, run.run, f"it started {lasting(due - started_at)} before it was due, {at(due)}")
    if run.trigger != "schedule" or may_wait(asked, recording):
        return
    ready = max(due, min(run.due_at, due + jitter(asked)), run.created_at)
    deadline = recording.deadline(ready)
    if started_at > deadline + error and not _behind_another(asked, run, recording):
        late = lasting(started_at - ready)
        if deadline > ready + recording.setup.lateness:
            detail = f"it started {late} late, {lasting(started_at - deadline)} later than it may after a fault"
            yield found(Code.SLOW_RECOVERY, run.run, detail)
        else:
            yield found(Code.LATE_START, run.run, f"it started {late} after {at(ready)} although nothing was broken")


def _due(asked: Asked, run: FinalRun) -> float:
    """When it may start: by what was asked for, where that says it, not by what Horae made of it."""
    if run.trigger == "schedule":
        return run.slot if asked.recurring and run.slot is not None else min(due_times(asked), default=run.due_at)
    action = Action.REQUEUE if run.trigger == "requeue" else Action.TRIGGER
    called = [call.began_at for call in asked.of(action, Action.BACKFILL)]
    return min(called, default=run.due_at)


def _behind_another(asked: Asked, run: FinalRun, recording: Recording) -> bool:
    """Whether another run of a job that may not overlap was in its way, or would have been after a fault."""
    if not in_line(asked):
        return False
    if recording.deadline(run.due_at) > run.due_at + recording.setup.lateness:
        return True
    return any(
        other.run != run.run and other.due_at <= run.due_at and (other.finished_at or recording.end_at) > run.due_at
        for other in asked.runs
    )


# --- I15: origin


def _nothing_else(recording: Recording) -> Iterator[Violation]:
    for start in recording.starts:
        asked = recording.asked.get(start.label)
        if asked is None or not asked.possible:
            why = "refused" if asked else "never asked for"
            yield found(Code.UNASKED, start.run, f"a handler started {at(start.at)} for {start.label!r}, {why}")
        elif recording.closed_at is not None:
            yield from _has_its_run(asked, start, recording)


def _has_its_run(asked: Asked, start: Effect, recording: Recording) -> Iterator[Violation]:
    run = recording.runs.get(start.run)
    if run is None:
        yield found(Code.UNASKED, start.run, f"a handler started {at(start.at)} for a run that is not there at the end")
    elif run not in asked.runs:
        yield found(
            Code.UNASKED, start.run, f"a handler started for {start.label!r}, which is not the label of its job"
        )
    elif start.at < asked.asked_at - recording.setup.clock_error:
        yield found(Code.UNASKED, start.run, f"a handler started {at(start.at)}, before anybody asked for it")
