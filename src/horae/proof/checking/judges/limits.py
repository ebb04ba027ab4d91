"""I11: no more handlers run at once than the limit of a queue or node allows."""

from collections.abc import Iterator, Sequence

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import HandlerSpan, Recording
from horae.proof.checking.history.records import Action, Limit
from horae.proof.checking.judges.leases import leased_until


def judge_limits(recording: Recording) -> Iterator[Violation]:
    for limit in recording.setup.limits:
        spans = [span for of in recording.spans.values() for span in of if _is_of(span, limit, recording)]
        yield from _judge(limit, spans, recording)


def _is_of(span: HandlerSpan, limit: Limit, recording: Recording) -> bool:
    if limit.scope == "node":
        return span.start.node == limit.name
    requested = recording.requested.get(span.start.label)
    if requested is None or requested.calls_of(Action.UPDATE):  # which may have moved it to another queue
        return False
    return requested.definition.queue == limit.name


def _judge(limit: Limit, spans: Sequence[HandlerSpan], recording: Recording) -> Iterator[Violation]:
    """Count the handlers between their starts and ends; a handler without a known end is left out."""
    error = recording.setup.clock_error
    edges: list[tuple[float, int, int]] = []
    for place, span in enumerate(spans):
        if span.ended_at is not None and span.ended_at - error > span.start.at:
            edges += [(span.start.at, 1, place), (span.ended_at - error, -1, place)]
    running: set[int] = set()
    for moment, change, place in sorted(edges):
        if change < 0:
            running.remove(place)
            continue
        running.add(place)
        if len(running) > limit.most and moment > limit.since:
            count = sum(_counts(spans[each], moment, recording) for each in running)
            if count > limit.most:
                detail = f"with it {count} handlers of the {limit.scope} {limit.name} were running {at(moment)}"
                yield found(Code.LIMIT_EXCEEDED, spans[place].start.run, f"{detail}, not {limit.most} at most")


def _counts(span: HandlerSpan, moment: float, recording: Recording) -> bool:
    """Whether a handler counts for the limit: not after the lease of its worker ran out."""
    return not recording.heartbeats or moment < leased_until(span.start.node, moment, recording)
