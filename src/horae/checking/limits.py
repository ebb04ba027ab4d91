"""I11: never more handlers at work at once than a queue or a node allows."""

from collections.abc import Iterator

from horae.checking.history import Code, Violation
from horae.checking.recorded import Recording, Span
from horae.checking.recording import Action, Limit
from horae.checking.telling import at, found


def judge_limits(recording: Recording) -> Iterator[Violation]:
    for limit in recording.setup.limits:
        spans = [span for of in recording.spans.values() for span in of if _is_of(span, limit, recording)]
        yield from _judge(limit, spans, recording.setup.clock_error)


def _is_of(span: Span, limit: Limit, recording: Recording) -> bool:
    if limit.scope == "node":
        return span.start.node == limit.name
    asked = recording.asked.get(span.start.label)
    if asked is None or asked.of(Action.UPDATE):  # which may have moved it from one queue to another
        return False
    return asked.definition.queue == limit.name


def _judge(limit: Limit, spans: list[Span], error: float) -> Iterator[Violation]:
    """Count starts and ends as they come; where nobody knows an end, the handler counts for no time."""
    edges: list[tuple[float, int, str]] = []
    for span in spans:
        if span.ended_at is not None and span.ended_at - error > span.start.at:
            edges += [(span.start.at, 1, span.start.run), (span.ended_at - error, -1, span.start.run)]
    working = 0
    for moment, change, run in sorted(edges):
        working += change
        if change > 0 and working > limit.most and moment > limit.since:
            detail = f"with it {working} handlers of the {limit.scope} {limit.name} were at work {at(moment)}"
            yield found(Code.LIMIT_EXCEEDED, run, f"{detail}, not {limit.most} at most")
