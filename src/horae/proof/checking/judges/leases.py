"""I4 and I10 by the leases themselves, where a harness stood between the workers and the store and saw them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import FOREVER, Recording
from horae.proof.checking.history.recording import Effect, Happening
from horae.proof.checking.wording import at, found

MARGIN = 0.02  # seconds between the clock of a worker and the harness'


def judge_leases(recording: Recording) -> Iterator[Violation]:
    for run, leases in recording.leases.items():
        for before, after in pairwise(leases):
            if after.fence <= before.fence:
                detail = f"it was given out under fence {after.fence} {at(after.at)}, after {before.fence}"
                yield found(Code.FENCE_REUSED, run, detail)
    if recording.beats:
        yield from _side_by_side(recording)


def held_at(run: str, moment: float, recording: Recording) -> bool:
    """Whether the store had given a run out by then, and knew of no end."""
    given = [lease.at for lease in recording.leases.get(run, ()) if lease.at <= moment]
    taken = [report.at for report in recording.reports.get(run, ()) if report.accepted]
    return bool(given) and not any(given[-1] < end < moment for end in taken)


def ended_at(run: str, recording: Recording) -> float | None:
    """When the store took the first result of a run."""
    return min((report.at for report in recording.reports.get(run, ()) if report.accepted), default=None)


def leased_until(node: str, moment: float, recording: Recording) -> float:
    """How long a worker could be sure of its runs, by what the store had heard of it at that time."""
    sent = [beat.sent_at for beat in recording.beats[node] if beat.sent_at <= moment]
    lease = max(sent, default=0.0) + recording.setup.lease
    return min(lease, recording.gone.get(node, FOREVER))


@dataclass(frozen=True, slots=True)
class _Work:
    """A handler at work, from its start to its end, its stop, or the death of its process."""

    start: Effect
    end: float


def _side_by_side(recording: Recording) -> Iterator[Violation]:
    """Attempts of one run, and runs of one gate, overlap only after the lease of the earlier one's worker ran out."""
    for work in _lines(recording).values():
        for place, one in enumerate(work):
            for other in work[place + 1 :]:
                began = other.start.at
                if began < one.end and began + MARGIN < leased_until(one.start.node, began, recording):
                    same = one.start.run == other.start.run
                    detail = (
                        f"its handler under fence {other.start.fence} began {at(began)} beside that of {one.start.run}"
                        f" under fence {one.start.fence}, whose worker {one.start.node} held its lease"
                    )
                    yield found(Code.ATTEMPTS_OVERLAP if same else Code.OVERLAPPED, other.start.run, detail)


def _lines(recording: Recording) -> dict[str, list[_Work]]:
    """What has to come one after another, in the order of the starts."""
    ends: defaultdict[tuple[str, int, str], list[float]] = defaultdict(list)
    for effect in recording.effects:
        if effect.event is not Happening.START:
            ends[effect.run, effect.fence, effect.node].append(effect.at)
    lines: defaultdict[str, list[_Work]] = defaultdict(list)
    for start in recording.starts:
        final = recording.runs.get(start.run)
        line = start.run if final is None or final.gate is None else final.gate
        deaths = recording.deaths[start.pid]
        died = deaths[bisect_right(deaths, start.at) :][:1]
        end = min([*ends[start.run, start.fence, start.node], *died], default=FOREVER)
        lines[line].append(_Work(start, end))
    return lines
