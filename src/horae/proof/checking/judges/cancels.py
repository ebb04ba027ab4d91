"""I7 and I20: what is cancelled does not start, and what a deleted job has left does not either."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Asked, Call, Recording
from horae.proof.checking.history.recording import Action
from horae.proof.checking.wording import at, found, name

MARGIN = 0.02  # seconds between the clock of a node and the harness'
SETTLED = frozenset({"cancelled", "succeeded", "failed", "skipped"})


def judge_cancels(recording: Recording) -> Iterator[Violation]:
    for call in recording.calls:
        if call.invoke.action is Action.CANCEL and call.ok and call.invoke.run:
            yield from _judge_cancel(call.invoke.run, call, recording)
            yield from _given_on(call.invoke.run, call, recording)
    for asked in recording.asked.values():
        for call in asked.of(Action.DELETE):
            if call.ok:
                yield from _judge_delete(asked, call, recording)
                if not call.invoke.keep_running and recording.beats:  # who sees those sees leases when they are given
                    older = [run.run for run in asked.runs if run.created_at < call.began_at - MARGIN]
                    for run in older:
                        yield from _given_on(run, call, recording)


def _given_on(run: str, call: Call, recording: Recording) -> Iterator[Violation]:
    """What is being cancelled is given to nobody else, where a harness saw what was given to whom."""
    fences = {lease.fence for lease in recording.leases.get(run, ()) if lease.at > call.done_at}
    for span in recording.spans.get(run, ()) if fences else ():
        if span.start.fence in fences:
            detail = f"its cancel was taken {at(call.done_at)}, and it was given to another and started after that"
            yield found(Code.CANCEL_IGNORED, run, detail)
            return


def _judge_delete(asked: Asked, call: Call, recording: Recording) -> Iterator[Violation]:
    """What a deleted job has left does not start; what somebody asked for by itself, such as a requeue, may."""
    grace = recording.setup.lease + recording.setup.clock_error
    for start in asked.starts:
        if start.at <= call.done_at + grace:
            continue
        run = recording.runs.get(start.run)
        first = min(span.start.at for span in recording.spans[start.run])
        kept = call.invoke.keep_running and first <= call.done_at + grace
        if not kept and (run is None or run.trigger in ("schedule", "backfill")):
            detail = f"a handler started {at(start.at)}, though it was deleted {at(call.done_at)}"
            yield found(Code.DELETED_YET_STARTED, name(asked), detail)
            return


def _judge_cancel(run: str, call: Call, recording: Recording) -> Iterator[Violation]:
    assert call.ok is not None
    spans = recording.spans.get(run, [])
    setup = recording.setup
    if call.ok.status == "cancelled":
        late = [span.start for span in spans if span.start.at > call.done_at + setup.clock_error]
        if late:
            detail = f"it was cancelled {at(call.done_at)}, and a handler started {at(late[0].at)}"
            yield found(Code.CANCELLED_YET_STARTED, run, detail)
    elif call.ok.status == "cancelling":
        patience = setup.grace + setup.lease
        calm = recording.calm_from(call.done_at)
        late = [span.start for span in spans if span.start.at > calm + patience]
        if late:
            detail = f"its cancel was taken {at(call.done_at)}, and a handler started {at(late[0].at)}"
            yield found(Code.CANCEL_IGNORED, run, detail)
        final = recording.runs.get(run)
        if final is not None and final.status not in SETTLED and calm + patience < recording.end_at:
            detail = f"its cancel was taken {at(call.done_at)}, and it is {final.status} at the end"
            yield found(Code.CANCEL_IGNORED, run, detail)
