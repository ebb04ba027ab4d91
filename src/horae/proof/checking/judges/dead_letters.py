"""I9: a run that used up its retries is a dead letter with unchanged parameters, until it is resolved once."""

from collections import Counter
from collections.abc import Iterator

from horae.core.decisions.results import MAX_CRASHES
from horae.proof.checking.findings import Code, Violation, found
from horae.proof.checking.history.recording import Recording, RequestedJob
from horae.proof.checking.history.records import Action, FinalRun, HandlerEvent
from horae.proof.checking.judges.attempts import allowed, counted
from horae.proof.checking.store.runs import PLAIN_ERRORS


def judge_dead_letters(recording: Recording) -> Iterator[Violation]:
    if recording.closed_at is None:
        return
    for requested in recording.requested.values():
        for run in requested.runs:
            yield from _failed_rightly(requested, run)
            yield from _listed(run)
            yield from _unchanged(requested, run, recording)
    yield from _resolved_once(recording)
    yield from _requeued(recording)


def _failed_rightly(requested: RequestedJob, run: FinalRun) -> Iterator[Violation]:
    attempts = sorted(run.attempts, key=lambda attempt: attempt.fence)
    used_up = counted(attempts) >= allowed(requested)
    final = bool(attempts) and attempts[-1].error not in PLAIN_ERRORS
    if run.status == "failed" and not used_up and not final and run.crashes < MAX_CRASHES and not _raised(requested):
        detail = f"it was given up after {counted(attempts)} of {allowed(requested)} attempts"
        yield found(Code.GAVE_UP_EARLY, run.run, f"{detail}, for an error that allows a retry")
    elif used_up and run.status not in ("failed", "cancelled"):
        detail = f"all its {counted(attempts)} attempts failed, but it is {run.status} instead of failed"
        yield found(Code.NOT_A_DEAD_LETTER, run.run, detail)


def _raised(requested: RequestedJob) -> bool:
    """Whether an update may have allowed more attempts after the run had failed."""
    return bool(requested.calls_of(Action.UPDATE))


def _listed(run: FinalRun) -> Iterator[Violation]:
    is_letter = run.status == "failed" and run.resolution is None
    if is_letter and not run.dead_letter:
        yield found(Code.NOT_A_DEAD_LETTER, run.run, "it failed and is not resolved, but is not among the dead letters")
    elif run.dead_letter and not is_letter:
        how = f"resolved as {run.resolution}" if run.resolution else run.status
        yield found(Code.BAD_RESOLUTION, run.run, f"it is among the dead letters although it is {how}")


def _unchanged(requested: RequestedJob, run: FinalRun, recording: Recording) -> Iterator[Violation]:
    """The parameters are those that were sent, byte by byte; a trigger may have its own."""
    calls = [*requested.create_calls, *requested.calls_of(Action.UPDATE)]
    sent = {call.invoke.definition.params for call in calls if call.invoke.definition is not None}
    if "" in sent or run.trigger == "manual":
        return
    if run.params and run.params not in sent:
        yield found(Code.PARAMS_CHANGED, run.run, f"its parameters are {run.params[:80]}, which no client sent")
    for span in recording.spans.get(run.run, ()):
        if span.start.params and span.start.params not in sent:
            detail = f"its handler was given the parameters {span.start.params[:80]}, which no client sent"
            yield found(Code.PARAMS_CHANGED, run.run, detail)


def _resolved_once(recording: Recording) -> Iterator[Violation]:
    successors = Counter(run.requeue_of for run in recording.runs.values() if run.requeue_of is not None)
    for replaced, count in successors.items():
        if count > 1:
            yield found(Code.BAD_RESOLUTION, replaced, f"it was replaced by {count} runs")
    for run in recording.runs.values():
        if run.requeue_of is not None:
            letter = recording.runs.get(run.requeue_of)
            if letter is not None and letter.resolution != run.run:
                status = letter.resolution or "not resolved"
                yield found(Code.BAD_RESOLUTION, run.run, f"it replaces {letter.run}, which is {status}")
        if run.resolution not in (None, "discarded") and run.resolution not in recording.runs:
            yield found(Code.BAD_RESOLUTION, run.run, f"it was replaced by {run.resolution}, which does not exist")


def _requeued(recording: Recording) -> Iterator[Violation]:
    """A dead letter that a call resolved has a resolution, and an exhausted run is still in the store."""
    for call in recording.calls:
        if call.invoke.action in (Action.REQUEUE, Action.DISCARD) and call.ok and call.invoke.run is not None:
            letter = recording.runs.get(call.invoke.run)
            if letter is None:
                detail = "it was resolved, and is missing in the final state"
                yield found(Code.NOT_A_DEAD_LETTER, call.invoke.run, detail)
            elif letter.resolution is None:
                yield found(Code.BAD_RESOLUTION, letter.run, f"the {call.invoke.action} of it left it unresolved")
    ends = [effect for effect in recording.effects if effect.event is HandlerEvent.END]
    failures = Counter(end.run for end in ends if not end.good)
    for requested in recording.requested.values():
        lowest = allowed(requested)
        for start in requested.starts:
            if failures[start.run] >= lowest and start.run not in recording.runs:
                detail = "all its attempts failed, and it is missing in the final state"
                yield found(Code.NOT_A_DEAD_LETTER, start.run, detail)
