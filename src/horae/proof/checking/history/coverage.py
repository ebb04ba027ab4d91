"""Whether a history proves anything: how often each thing occurred that it has to survive, and which faults fired."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from horae.proof.checking.history.recorded import Recording, Span
from horae.proof.checking.history.recording import Sight
from horae.proof.checking.judges.slots import MISSED_AFTER


@dataclass(frozen=True, slots=True)
class Proof:
    """What occurred, and what should have and did not."""

    sights: Mapping[Sight, int]
    faults: Mapping[str, int]
    unfired: tuple[str, ...]  # faults that were planned

    @property
    def unseen(self) -> tuple[Sight, ...]:
        return tuple(sight for sight, times in self.sights.items() if times == 0)

    @property
    def proves(self) -> bool:
        """Whether the history counts: everything occurred, and every planned fault fired."""
        return not self.unfired and not self.unseen


def proof(recording: Recording) -> Proof:
    seen: Counter[Sight] = Counter()
    for sighting in recording.sightings:
        seen[sighting.what] += sighting.times
    seen[Sight.LEASE_LOST] += sum(attempt.outcome == "lost" for run in recording.finals for attempt in run.attempts)
    seen[Sight.REFUSED_REPORT] += sum(not each.accepted for of in recording.reports.values() for each in of)
    for spans in recording.spans.values():
        seen[Sight.REFUSED_REPORT] += sum(_ended_in_vain(span) for span in spans)
        seen[Sight.RESCUE] += sum(span.lost for span in spans[:-1])
    seen[Sight.CATCH_UP] += sum(
        run.trigger == "schedule" and run.slot is not None and run.created_at > run.slot + MISSED_AFTER
        for run in recording.finals
    )
    seen[Sight.CATCH_UP] += sum(skip.reason == "misfire" for of in recording.skips.values() for skip in of)
    seen[Sight.INFO_CALL] += sum(call.is_unknown for call in recording.calls)
    faults = Counter(fault.fault for fault in recording.faults)
    unfired = tuple(name for name in recording.setup.planned if not faults[name])
    return Proof({sight: seen[sight] for sight in Sight}, dict(faults), unfired)


def _ended_in_vain(span: Span) -> bool:
    """A handler that came to its end after its lease was lost: its result was refused, or never sent."""
    told = span.attempt
    return span.end is not None and told is not None and told.outcome == "lost" and span.end.at > (told.ended_at or 0.0)
