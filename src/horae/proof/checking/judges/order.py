"""I10: runs with the same ordering key run one after another, in the order of their requests."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horae.proof.checking.findings import Code, Violation, at, duration, found
from horae.proof.checking.history.recording import HandlerSpan, Recording, RequestedJob
from horae.proof.checking.history.records import Action, Definition, FinalRun
from horae.proof.checking.history.versions import due_times

CHANGED = (Action.UPDATE, Action.PAUSE, Action.RESUME)


@dataclass(frozen=True, slots=True)
class _GatedRun:
    """A run of a gate, with its job and its handlers."""

    requested: RequestedJob
    run: FinalRun
    spans: Sequence[HandlerSpan]

    @property
    def started_at(self) -> float:
        return min(span.start.at for span in self.spans)

    @property
    def made_way_at(self) -> float | None:
        """When its last handler made way for the next run, of those whose lease was not lost."""
        ends = [_made_way_at(span) for span in self.spans if not span.lost]
        return max((end for end in ends if end is not None), default=None)


def _made_way_at(span: HandlerSpan) -> float | None:
    """When it made way for the next; a handler that runs on after its attempt is judged in `leases`."""
    stored = span.attempt.ended_at if span.attempt is not None and span.may_outlast_attempt else None
    return min((moment for moment in (span.ended_at, stored) if moment is not None), default=None)


def judge_order(recording: Recording) -> Iterator[Violation]:
    for key, gated_runs in _gates(recording).items():
        yield from _one_at_a_time(gated_runs, recording, by_key=key[1] == "key")
        if key[1] == "key":
            yield from _in_order(gated_runs, recording)


def _gates(recording: Recording) -> dict[tuple[str, str, str], list[_GatedRun]]:
    gates: defaultdict[tuple[str, str, str], list[_GatedRun]] = defaultdict(list)
    for requested in recording.requested.values():
        definition = requested.definition
        if requested.calls_of(Action.UPDATE):  # it is not known which of its runs had which version
            continue
        if definition.ordering_key is not None:
            gate = requested.owner, "key", definition.ordering_key
        elif requested.recurring and definition.overlap != "allow":
            gate = requested.owner, "job", requested.label
        else:
            continue
        for run in requested.runs:
            if spans := recording.spans.get(run.run):
                gates[gate].append(_GatedRun(requested, run, spans))
    return gates


def _one_at_a_time(gated_runs: Sequence[_GatedRun], recording: Recording, *, by_key: bool) -> Iterator[Violation]:
    """Handlers do not overlap, except after a lost lease or a time-out."""
    spans = [span for gated in gated_runs for span in gated.spans if _holds(span)]
    spans.sort(key=lambda span: (span.start.at, _end(span)))
    code = Code.OUT_OF_ORDER if by_key else Code.OVERLAPPED
    longest: HandlerSpan | None = None  # the earlier handler that ended last
    for span in spans:
        if longest is not None and longest.start.run != span.start.run:
            over = _end(longest) - span.start.at
            if over > recording.setup.clock_error:
                detail = f"it started {duration(over)} before {longest.start.run} ended, which shares its gate"
                yield found(code, span.start.run, detail)
        if longest is None or _end(span) > _end(longest):
            longest = span


def _end(span: HandlerSpan) -> float:
    return span.ended_at if span.ended_at is not None else span.start.at


def _holds(span: HandlerSpan) -> bool:
    return not span.lost and span.attempt is not None and span.attempt.outcome in ("succeeded", "failed")


def _in_order(gated_runs: Sequence[_GatedRun], recording: Recording) -> Iterator[Violation]:
    """Of two one-shots, the one that was accepted before the other was requested, and is due no later, runs first.

    Two nodes may see requests within the error of their clocks in either order.
    """
    once = [each for each in gated_runs if _has_fixed_place(each)]
    once.sort(key=lambda each: each.requested.requested_at)
    for index, second in enumerate(once):
        for first in once[max(0, index - 20) : index]:
            earlier = first.requested.accepted_at < second.requested.requested_at - recording.setup.clock_error
            if earlier and _due_by(first) <= _due(second):
                yield from _judge_pair(first, second, recording)


def _has_fixed_place(gated: _GatedRun) -> bool:
    return not gated.requested.recurring and gated.run.trigger == "schedule" and not gated.requested.calls_of(*CHANGED)


def _due(gated: _GatedRun) -> float:
    return min(due_times(gated.requested))


def _due_by(gated: _GatedRun) -> float:
    """Its latest possible due time; for `now`, when its first create was answered."""
    due = max(due_times(gated.requested))
    return gated.requested.accepted_at if due == gated.requested.requested_at else due


def _judge_pair(first: _GatedRun, second: _GatedRun, recording: Recording) -> Iterator[Violation]:
    slack = recording.setup.clock_error
    if second.started_at < first.started_at - slack:
        detail = f"it started {at(second.started_at)}, before {first.run.run}, which was accepted before it"
        yield found(Code.OUT_OF_ORDER, second.run.run, detail)
    elif early := [span for span in second.spans if _starts_before_end(span, first, slack)]:
        detail = f"it started {at(early[0].start.at)}, before {first.run.run} had ended, which comes before it"
        yield found(Code.OUT_OF_ORDER, second.run.run, detail)
    elif _blocks(first, second):
        detail = f"it started {at(second.started_at)} although {first.run.run} failed before it and blocks"
        yield found(Code.BLOCK_IGNORED, second.run.run, detail)


def _starts_before_end(span: HandlerSpan, first: _GatedRun, slack: float) -> bool:
    """Whether a handler started before the run ahead had ended, unless its own process had seen that run end.

    A process that dies before it can report a result has it repeated, after the run that it had started next.
    """
    if first.made_way_at is None or span.start.at >= first.made_way_at - slack:
        return False
    here = [each for each in first.spans if each.start.pid == span.start.pid and each.start.node == span.start.node]
    return not any(_makes_way(each, first.requested.definition, span.start.at) for each in here)


def _makes_way(span: HandlerSpan, definition: Definition, moment: float) -> bool:
    """Whether a handler had ended by then for good: with success, or with a last failure that does not block."""
    if span.end is None or span.end.at > moment:
        return False
    given_up = span.start.attempt > definition.max_retries and definition.on_failure == "continue"
    return span.end.good or given_up


def _blocks(first: _GatedRun, second: _GatedRun) -> bool:
    run = first.run
    blocking = run.status == "failed" and run.resolution is None and first.requested.definition.on_failure == "block"
    return blocking and run.finished_at is not None and second.started_at > run.finished_at
