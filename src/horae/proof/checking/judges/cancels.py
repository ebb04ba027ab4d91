"""I7 and I20: no run starts after it was cancelled, or after its job was deleted."""

from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import FINAL_STATUS, RecordedCall, Recording, RequestedJob
from horae.proof.checking.history.records import Action

MARGIN = 0.02  # seconds between the clocks of a node and of the harness


def judge_cancels(recording: Recording) -> Iterator[Violation]:
    for call in recording.calls:
        if call.invoke.action is Action.CANCEL and call.ok and call.invoke.run:
            yield from _judge_cancel(call.invoke.run, call, recording)
            yield from _granted_after(call.invoke.run, call, recording)
    for requested in recording.requested.values():
        for call in requested.calls_of(Action.DELETE):
            if call.ok:
                yield from _judge_delete(requested, call, recording)
                # With heartbeats, leases are recorded when they are granted.
                if not call.invoke.keep_running and recording.heartbeats:
                    older = [run.run for run in requested.runs if run.created_at < call.began_at - MARGIN]
                    for run in older:
                        yield from _granted_after(run, call, recording)


def _granted_after(run: str, call: RecordedCall, recording: Recording) -> Iterator[Violation]:
    """A run that is being cancelled is not granted to another worker, where leases are recorded."""
    fences = {lease.fence for lease in recording.leases.get(run, ()) if lease.at > call.done_at}
    for span in recording.spans.get(run, ()) if fences else ():
        if span.start.fence in fences:
            detail = f"its cancel was accepted {at(call.done_at)}, and after that it was claimed again and started"
            yield found(Code.CANCEL_IGNORED, run, detail)
            return


def _judge_delete(requested: RequestedJob, call: RecordedCall, recording: Recording) -> Iterator[Violation]:
    """No scheduled or backfilled run of a deleted job starts; a run requested separately, as a requeue, may."""
    grace = recording.setup.lease + recording.setup.clock_error
    for start in requested.starts:
        if start.at <= call.done_at + grace:
            continue
        run = recording.runs.get(start.run)
        first = min(span.start.at for span in recording.spans[start.run])
        kept = call.invoke.keep_running and first <= call.done_at + grace
        if not kept and (run is None or run.trigger in ("schedule", "backfill")):
            detail = f"a handler started {at(start.at)}, though it was deleted {at(call.done_at)}"
            yield found(Code.DELETED_YET_STARTED, requested.name, detail)
            return


def _judge_cancel(run: str, call: RecordedCall, recording: Recording) -> Iterator[Violation]:
    assert call.ok is not None
    spans = recording.spans.get(run, [])
    setup = recording.setup
    if call.ok.status == "cancelled":
        late = [span.start for span in spans if span.start.at > call.done_at + setup.clock_error]
        if late:
            detail = f"it was cancelled {at(call.done_at)}, and a handler started {at(late[0].at)}"
            yield found(Code.CANCELLED_YET_STARTED, run, detail)
    elif call.ok.status == "cancelling":
        allowed = setup.grace + setup.lease
        ready = recording.recovered_at(call.done_at)
        late = [span.start for span in spans if span.start.at > ready + allowed]
        if late:
            detail = f"its cancel was accepted {at(call.done_at)}, and a handler started {at(late[0].at)}"
            yield found(Code.CANCEL_IGNORED, run, detail)
        final = recording.runs.get(run)
        if final is not None and final.status not in FINAL_STATUS and ready + allowed < recording.end_at:
            detail = f"its cancel was accepted {at(call.done_at)}, and it is {final.status} at the end"
            yield found(Code.CANCEL_IGNORED, run, detail)
