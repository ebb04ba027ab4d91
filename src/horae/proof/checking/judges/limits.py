"""I11: never more handlers at work at once than a queue or a node allows."""

from collections.abc import Iterator, Sequence

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Recording, Span
from horae.proof.checking.history.recording import Action, Limit
from horae.proof.checking.judges.leases import leased_until
from horae.proof.checking.wording import at, found


def judge_limits(recording: Recording) -> Iterator[Violation]:
    for limit in recording.setup.limits:
        spans = [span for of in recording.spans.values() for span in of if _is_of(span, limit, recording)]
        yield from _judge(limit, spans, recording)


def _is_of(span: Span, limit: Limit, recording: Recording) -> bool:
    if limit.scope == "node":
        return span.start.node == limit.name
    asked = recording.asked.get(span.start.label)
    if asked is None or asked.of(Action.UPDATE):  # which may have moved it from one queue to another
        return False
    return asked.definition.queue == limit.name


def _judge(limit: Limit, spans: Sequence[Span], recording: Recording) -> Iterator[Violation]:
    """Count starts and ends as they come; where nobody knows an end, the handler counts for no time."""
    error = recording.setup.clock_error
    edges: list[tuple[float, int, int]] = []
    for place, span in enumerate(spans):
        if span.ended_at is not None and span.ended_at - error > span.start.at:
            edges += [(span.start.at, 1, place), (span.ended_at - error, -1, place)]
    working: set[int] = set()
    for moment, change, place in sorted(edges):
        if change < 0:
            working.remove(place)
            continue
        working.add(place)
        if len(working) > limit.most and moment > limit.since:
            count = sum(_counts(spans[each], moment, recording) for each in working)
            if count > limit.most:
                detail = f"with it {count} handlers of the {limit.scope} {limit.name} were at work {at(moment)}"
                yield found(Code.LIMIT_EXCEEDED, spans[place].start.run, f"{detail}, not {limit.most} at most")


def _counts(span: Span, moment: float, recording: Recording) -> bool:
    """Whether a handler at work has a right to its place: not any more when the lease of its worker has run out."""
    return not recording.beats or moment < leased_until(span.start.node, moment, recording)
