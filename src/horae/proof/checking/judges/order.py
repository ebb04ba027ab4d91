"""I10: what shares an ordering key runs one after another, in the order in which it was asked for."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Asked, Recording, Span
from horae.proof.checking.history.recording import Action, Definition, FinalRun
from horae.proof.checking.history.versions import due_times
from horae.proof.checking.wording import at, found, lasting

CHANGED = (Action.UPDATE, Action.PAUSE, Action.RESUME)


@dataclass(frozen=True, slots=True)
class _Passage:
    """One run of a key, with the job that it is of."""

    asked: Asked
    run: FinalRun
    spans: Sequence[Span]

    @property
    def started_at(self) -> float:
        return min(span.start.at for span in self.spans)

    @property
    def worked_to(self) -> float | None:
        """When its last handler ended or was left alone, of those whose lease was not lost."""
        ends = [_over_at(span) for span in self.spans if not span.lost]
        return max((end for end in ends if end is not None), default=None)


def _over_at(span: Span) -> float | None:
    """When it made way for the next; whether a handler that goes on after that held its lease is told by the leases."""
    told = span.attempt.ended_at if span.attempt is not None and span.left_alone else None
    return min((moment for moment in (span.ended_at, told) if moment is not None), default=None)


def judge_order(recording: Recording) -> Iterator[Violation]:
    for key, passages in _gates(recording).items():
        yield from _one_at_a_time(passages, recording, by_key=key[1] == "key")
        if key[1] == "key":
            yield from _in_turn(passages, recording)


def _gates(recording: Recording) -> dict[tuple[str, str, str], list[_Passage]]:
    gates: defaultdict[tuple[str, str, str], list[_Passage]] = defaultdict(list)
    for asked in recording.asked.values():
        definition = asked.definition
        if asked.of(Action.UPDATE):  # nobody knows which of its runs was of which version
            continue
        if definition.ordering_key is not None:
            gate = asked.owner, "key", definition.ordering_key
        elif asked.recurring and definition.overlap != "allow":
            gate = asked.owner, "job", asked.label
        else:
            continue
        for run in asked.runs:
            if spans := recording.spans.get(run.run):
                gates[gate].append(_Passage(asked, run, spans))
    return gates


def _one_at_a_time(passages: Sequence[_Passage], recording: Recording, *, by_key: bool) -> Iterator[Violation]:
    """Handlers never work side by side, but for those that had lost their lease or do not listen to their time-out."""
    spans = [span for passage in passages for span in passage.spans if _holds(span)]
    spans.sort(key=lambda span: (span.start.at, _end(span)))
    code = Code.OUT_OF_ORDER if by_key else Code.OVERLAPPED
    longest: Span | None = None  # of those before, the one that ended last
    for span in spans:
        if longest is not None and longest.start.run != span.start.run:
            over = _end(longest) - span.start.at
            if over > recording.setup.clock_error:
                detail = f"it started {lasting(over)} before {longest.start.run} ended, which shares its gate"
                yield found(code, span.start.run, detail)
        if longest is None or _end(span) > _end(longest):
            longest = span


def _end(span: Span) -> float:
    return span.ended_at if span.ended_at is not None else span.start.at


def _holds(span: Span) -> bool:
    return not span.lost and span.attempt is not None and span.attempt.outcome in ("succeeded", "failed")


def _in_turn(passages: Sequence[_Passage], recording: Recording) -> Iterator[Violation]:
    """Of jobs for once: what was accepted before another was asked for, and is due no later, comes first.

    Nodes that are asked one right after the other may see it the other way round, by the error of their clocks.
    """
    once = [each for each in passages if _has_a_place(each)]
    once.sort(key=lambda each: each.asked.asked_at)
    for index, second in enumerate(once):
        for first in once[max(0, index - 20) : index]:
            earlier = first.asked.accepted_at < second.asked.asked_at - recording.setup.clock_error
            if earlier and _due_by(first) <= _due(second):
                yield from _judge_pair(first, second, recording)


def _has_a_place(passage: _Passage) -> bool:
    return not passage.asked.recurring and passage.run.trigger == "schedule" and not passage.asked.of(*CHANGED)


def _due(passage: _Passage) -> float:
    return min(due_times(passage.asked))


def _due_by(passage: _Passage) -> float:
    """When it was due at the latest: what is due at once, whenever one of the calls that asked for it was done."""
    due = max(due_times(passage.asked))
    return passage.asked.accepted_at if due == passage.asked.asked_at else due


def _judge_pair(first: _Passage, second: _Passage, recording: Recording) -> Iterator[Violation]:
    slack = recording.setup.clock_error
    if second.started_at < first.started_at - slack:
        detail = f"it started {at(second.started_at)}, before {first.run.run}, which was accepted before it"
        yield found(Code.OUT_OF_ORDER, second.run.run, detail)
    elif early := [span for span in second.spans if _comes_before_its_end(span, first, slack)]:
        detail = f"it started {at(early[0].start.at)}, before {first.run.run} was over, which comes before it"
        yield found(Code.OUT_OF_ORDER, second.run.run, detail)
    elif _blocks(first, second):
        detail = f"it started {at(second.started_at)} although {first.run.run} failed before it and blocks"
        yield found(Code.BLOCK_IGNORED, second.run.run, detail)


def _comes_before_its_end(span: Span, first: _Passage, slack: float) -> bool:
    """Whether a handler started before the one ahead was over, unless its own process had seen that one make way.

    What a process has seen and could not report before it died is done again, after what it had gone on with.
    """
    if first.worked_to is None or span.start.at >= first.worked_to - slack:
        return False
    here = [each for each in first.spans if each.start.pid == span.start.pid and each.start.node == span.start.node]
    return not any(_makes_way(each, first.asked.definition, span.start.at) for each in here)


def _makes_way(span: Span, definition: Definition, moment: float) -> bool:
    """Whether a handler had ended by then, and for good: well, or by a failure that is not tried again nor blocks."""
    if span.end is None or span.end.at > moment:
        return False
    given_up = span.start.attempt > definition.max_retries and definition.on_failure == "continue"
    return span.end.good or given_up


def _blocks(first: _Passage, second: _Passage) -> bool:
    run = first.run
    blocking = run.status == "failed" and run.resolution is None and first.asked.definition.on_failure == "block"
    return blocking and run.finished_at is not None and second.started_at > run.finished_at
