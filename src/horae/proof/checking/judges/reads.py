"""I6: a run that was shown as ended keeps that status in later reads and the final state; a cancel is not undone."""

from collections import defaultdict
from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import FINAL_STATUS, RecordedCall, Recording
from horae.proof.checking.history.records import Action

AFTER_CANCELLING = FINAL_STATUS | {"cancelling"}


def judge_reads(recording: Recording) -> Iterator[Violation]:
    reads: defaultdict[str, list[RecordedCall]] = defaultdict(list)
    for call in recording.calls:
        if call.ok and call.ok.status and call.run and call.invoke.action in (Action.READ, Action.CANCEL):
            reads[call.run].append(call)
    for run, calls in reads.items():
        yield from _judge(run, sorted(calls, key=lambda call: call.done_at), recording)
    yield from _nothing_after_success(recording)


def _judge(run: str, calls: list[RecordedCall], recording: Recording) -> Iterator[Violation]:
    shown, since = None, 0.0  # the first final status that was shown, or `cancelling`
    for call in calls:
        assert call.ok is not None
        status = call.ok.status
        if shown is not None and call.began_at > since and not _may_follow(shown, status):
            yield found(Code.MOVED_AFTER_END, run, f"it was {shown} {at(since)}, and {status} {at(call.began_at)}")
            return
        if shown not in FINAL_STATUS and (status in FINAL_STATUS or (shown is None and status == "cancelling")):
            shown, since = status, call.done_at
    final = recording.runs.get(run)
    if shown in FINAL_STATUS and final is not None and final.status != shown:
        yield found(Code.MOVED_AFTER_END, run, f"it was {shown} {at(since)}, and is {final.status} in the final state")


def _may_follow(shown: str, status: str | None) -> bool:
    return status == shown if shown in FINAL_STATUS else status in AFTER_CANCELLING


def _nothing_after_success(recording: Recording) -> Iterator[Violation]:
    """No attempt follows the one that ended the run; fences show that without any clock."""
    for run in recording.final_runs:
        ended_under = [each.fence for each in run.attempts if each.outcome in ("succeeded", "cancelled")]
        if ended_under:
            later = [span for span in recording.spans.get(run.run, ()) if span.start.fence > min(ended_under)]
            if later:
                detail = f"it ended under fence {min(ended_under)}, and a handler started under {later[0].start.fence}"
                yield found(Code.MOVED_AFTER_END, run.run, detail)
