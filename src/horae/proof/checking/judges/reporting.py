"""I19: what nodes count, and what a run tells of itself, is what the history shows."""

from collections import Counter
from collections.abc import Iterator

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FINAL_STATUS, Recording
from horae.proof.checking.history.recording import FinalRun
from horae.proof.checking.wording import at, found

SKEW = 0.25  # seconds that the clock of a node may be off


def judge_honesty(recording: Recording) -> Iterator[Violation]:
    for run in recording.finals:
        yield from _judge_run(run, recording)
    if (counts := recording.counts) is None:
        return
    letters = sum(run.dead_letter for run in recording.finals)
    if counts.dead_letters is not None and counts.dead_letters != letters:
        detail = f"{counts.dead_letters} dead letters are counted, and {letters} listed"
        yield found(Code.DISHONEST, "dead letters", detail)
    told = Counter(run.status for run in recording.finals)
    for status, number in counts.runs.items():
        if number != told[status]:
            yield found(Code.DISHONEST, f"runs {status}", f"{number} are counted, and {told[status]} are there")


def _judge_run(run: FinalRun, recording: Recording) -> Iterator[Violation]:
    if (run.status in FINAL_STATUS) != (run.finished_at is not None):
        has = "no end" if run.finished_at is None else f"an end, {at(run.finished_at)}"
        yield found(Code.DISHONEST, run.run, f"it is {run.status} and has {has}")
    spans = [span for span in recording.spans.get(run.run, ()) if not span.lost]
    if spans and run.started_at is not None:
        noted = min(span.start.at for span in spans)
        # A handler notes its start after its run was taken to have started, by a clock that may be off a little.
        if noted < run.started_at - recording.setup.clock_error - SKEW:
            told = f"its first handler noted its start {at(noted)}, and it says {at(run.started_at)}"
            yield found(Code.DISHONEST, run.run, told)
