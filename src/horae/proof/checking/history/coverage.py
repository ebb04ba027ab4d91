"""Counts what occurred in a history, to decide whether it proves anything."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from horae.proof.checking.history.recording import HandlerSpan, Recording
from horae.proof.checking.history.records import Occurrence
from horae.proof.checking.judges.slots import MISSED_AFTER


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each required event and each fault occurred."""

    occurrences: Mapping[Occurrence, int]
    faults: Mapping[str, int]
    unfired: tuple[str, ...]  # planned faults that did not occur

    @property
    def missing(self) -> tuple[Occurrence, ...]:
        return tuple(occurrence for occurrence, times in self.occurrences.items() if times == 0)

    @property
    def is_complete(self) -> bool:
        """Whether everything occurred that must, and every planned fault."""
        return not self.unfired and not self.missing


def coverage_of(recording: Recording) -> Coverage:
    seen: Counter[Occurrence] = Counter()
    for observation in recording.observations:
        seen[observation.what] += observation.times
    seen[Occurrence.LEASE_LOST] += sum(
        attempt.outcome == "lost" for run in recording.final_runs for attempt in run.attempts
    )
    seen[Occurrence.REFUSED_REPORT] += sum(not each.accepted for of in recording.reports.values() for each in of)
    for spans in recording.spans.values():
        seen[Occurrence.REFUSED_REPORT] += sum(_ended_after_lease(span) for span in spans)
        seen[Occurrence.RESCUE] += sum(span.lost for span in spans[:-1])
    seen[Occurrence.CATCH_UP] += sum(
        run.trigger == "schedule" and run.slot is not None and run.created_at > run.slot + MISSED_AFTER
        for run in recording.final_runs
    )
    seen[Occurrence.CATCH_UP] += sum(skip.reason == "misfire" for of in recording.skips.values() for skip in of)
    seen[Occurrence.INFO_CALL] += sum(call.is_unknown for call in recording.calls)
    faults = Counter(fault.fault for fault in recording.faults)
    unfired = tuple(name for name in recording.setup.planned if not faults[name])
    return Coverage({occurrence: seen[occurrence] for occurrence in Occurrence}, dict(faults), unfired)


def _ended_after_lease(span: HandlerSpan) -> bool:
    """Whether a handler ended after its lease was lost: its result was refused, or never sent."""
    attempt = span.attempt
    if span.end is None or attempt is None:
        return False
    return attempt.outcome == "lost" and span.end.at > (attempt.ended_at or 0.0)
