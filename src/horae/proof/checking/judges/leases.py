"""I4 and I10 by recorded leases and heartbeats, where a harness observed the calls between workers and store."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation, at, found
from horae.proof.checking.history.recording import FOREVER, Recording
from horae.proof.checking.history.records import Effect, HandlerEvent

MARGIN = 0.02  # seconds between the clocks of a worker and of the harness


def judge_leases(recording: Recording) -> Iterator[Violation]:
    for run, leases in recording.leases.items():
        for before, after in pairwise(leases):
            if after.fence <= before.fence:
                detail = f"it was granted under fence {after.fence} {at(after.at)}, after {before.fence}"
                yield found(Code.FENCE_REUSED, run, detail)
    if recording.heartbeats:
        yield from _overlaps(recording)


def was_leased_at(run: str, moment: float, recording: Recording) -> bool:
    """Whether a run was claimed at that moment and the store had no result of it yet."""
    given = [lease.at for lease in recording.leases.get(run, ()) if lease.at <= moment]
    taken = [report.at for report in recording.reports.get(run, ()) if report.accepted]
    return bool(given) and not any(given[-1] < end < moment for end in taken)


def ended_at(run: str, recording: Recording) -> float | None:
    """Return when the store accepted the first result of a run."""
    return min((report.at for report in recording.reports.get(run, ()) if report.accepted), default=None)


def leased_until(node: str, moment: float, recording: Recording) -> float:
    """Return until when a worker held its lease, by the heartbeats that it had sent at that moment."""
    sent = [beat.sent_at for beat in recording.heartbeats[node] if beat.sent_at <= moment]
    lease = max(sent, default=0.0) + recording.setup.lease
    return min(lease, recording.nodes_gone.get(node, FOREVER))


@dataclass(frozen=True, slots=True)
class _Execution:
    """A handler from its start to its end, its stop, or the death of its process."""

    start: Effect
    end: float


def _overlaps(recording: Recording) -> Iterator[Violation]:
    """Attempts of one run, and runs of one gate, overlap only after the earlier worker's lease ran out."""
    for executions in _sequences(recording).values():
        for place, one in enumerate(executions):
            for other in executions[place + 1 :]:
                began = other.start.at
                if began < one.end and began + MARGIN < leased_until(one.start.node, began, recording):
                    same = one.start.run == other.start.run
                    detail = (
                        f"its handler under fence {other.start.fence} began {at(began)} beside that of {one.start.run}"
                        f" under fence {one.start.fence}, whose worker {one.start.node} held its lease"
                    )
                    yield found(Code.ATTEMPTS_OVERLAP if same else Code.OVERLAPPED, other.start.run, detail)


def _sequences(recording: Recording) -> dict[str, list[_Execution]]:
    """The handlers that must not overlap, by gate or run, in the order of their starts."""
    ends: defaultdict[tuple[str, int, str], list[float]] = defaultdict(list)
    for effect in recording.effects:
        if effect.event is not HandlerEvent.START:
            ends[effect.run, effect.fence, effect.node].append(effect.at)
    sequences: defaultdict[str, list[_Execution]] = defaultdict(list)
    for start in recording.starts:
        final = recording.runs.get(start.run)
        key = start.run if final is None or final.gate is None else final.gate
        deaths = recording.deaths[start.pid]
        died = deaths[bisect_right(deaths, start.at) :][:1]
        end = min([*ends[start.run, start.fence, start.node], *died], default=FOREVER)
        sequences[key].append(_Execution(start, end))
    return sequences
