"""I19: metrics and the times of runs agree with what the history shows."""

from collections import Counter
from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import FINAL_STATUS, Recording
from horae.proof.checking.history.records import FinalRun

SKEW = 0.25  # seconds that the clock of a node may be off


def judge_reporting(recording: Recording) -> Iterator[Violation]:
    for run in recording.final_runs:
        yield from _judge_run(run, recording)
    if (counts := recording.counts) is None:
        return
    letters = sum(run.dead_letter for run in recording.final_runs)
    if counts.dead_letters is not None and counts.dead_letters != letters:
        detail = f"{counts.dead_letters} dead letters are counted, and {letters} are listed"
        yield found(Code.DISHONEST, "dead letters", detail)
    stored = Counter(run.status for run in recording.final_runs)
    for status, number in counts.runs.items():
        if number != stored[status]:
            yield found(Code.DISHONEST, f"runs {status}", f"{number} are counted, and {stored[status]} are stored")


def _judge_run(run: FinalRun, recording: Recording) -> Iterator[Violation]:
    if (run.status in FINAL_STATUS) != (run.finished_at is not None):
        has = "no end" if run.finished_at is None else f"an end, {at(run.finished_at)}"
        yield found(Code.DISHONEST, run.run, f"it is {run.status} and has {has}")
    spans = [span for span in recording.spans.get(run.run, ()) if not span.lost]
    if spans and run.started_at is not None:
        recorded_at = min(span.start.at for span in spans)
        # A handler records its start after the worker set `started_at`, by a clock that may be slightly off.
        if recorded_at < run.started_at - recording.setup.clock_error - SKEW:
            detail = f"its first handler started {at(recorded_at)}, and its start is stored as {at(run.started_at)}"
            yield found(Code.DISHONEST, run.run, detail)
