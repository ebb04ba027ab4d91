"""A whole recorded history, with its lines grouped by call, job and run."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from horae.core.errors import Invalid
from horae.proof.checking.history import records
from horae.proof.checking.history.reference import ReferenceSlots

FINAL_STATUS = frozenset({"succeeded", "failed", "cancelled", "skipped"})
FOREVER = float("inf")

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A request with its answer; without an answer its outcome is unknown, as with an Info."""

    invoke: records.Invoke
    end: records.Ok | records.Fail | records.Info | None = None

    @property
    def ok(self) -> records.Ok | None:
        return self.end if isinstance(self.end, records.Ok) else None

    @property
    def may_have_taken_effect(self) -> bool:
        return not isinstance(self.end, records.Fail)

    @property
    def is_unknown(self) -> bool:
        return self.end is None or isinstance(self.end, records.Info)

    @property
    def began_at(self) -> float:
        return self.invoke.at

    @property
    def done_at(self) -> float:
        """The latest time at which it took effect, if it did."""
        return self.end.at if isinstance(self.end, records.Ok) else FOREVER

    @property
    def job(self) -> str | None:
        return self.invoke.job or (self.ok.job if self.ok else None)

    @property
    def run(self) -> str | None:
        return self.invoke.run or (self.ok.run if self.ok else None)


@dataclass(frozen=True, slots=True)
class HandlerSpan:
    """A handler from its start to its end."""

    start: records.Effect
    end: records.Effect | None  # as the handler recorded it
    attempt: records.FinalAttempt | None  # its attempt in the final state

    @property
    def lost(self) -> bool:
        """Whether its worker lost the lease: from then on another handler may run beside it."""
        return self.attempt is None or self.attempt.outcome == "lost"

    @property
    def may_outlast_attempt(self) -> bool:
        """Whether the handler may run on after its attempt ended: a thread or a frozen worker cannot be stopped."""
        return self.attempt is not None and self.attempt.outcome in ("timeout", "released", "cancelled")

    @property
    def ended_at(self) -> float | None:
        """When it ended or stopped counting; None if that is unknown."""
        own = self.end.at if self.end is not None else None
        stored = self.attempt.ended_at if self.attempt is not None else None
        if self.lost:
            return min((moment for moment in (own, stored) if moment is not None), default=None)
        return own if own is not None else stored


@dataclass(frozen=True, slots=True)
class JobVersion:
    """A definition of a job, with the times in which it possibly and certainly was in force."""

    definition: records.Definition
    possible_from: float
    certain_from: float
    certain_to: float
    possible_to: float
    shown: Mapping[str, Any]  # its schedule in the answer, if that was recorded


@dataclass(slots=True)
class RequestedJob:
    """A job by its label, with every call about it and its final state."""

    label: str
    create_calls: list[RecordedCall] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)  # about it or its runs, without creates and reads
    runs: list[records.FinalRun] = field(default_factory=list)
    job: records.FinalJob | None = None  # only of a recurring job
    skips: list[records.FinalSkip] = field(default_factory=list)
    starts: list[records.Effect] = field(default_factory=list)  # by label, not by id
    ends: list[records.Effect] = field(default_factory=list)
    versions: list[JobVersion] | None = None  # computed on first use
    slots: ReferenceSlots | None = None  # of a recurring job; computed on first use

    @property
    def definition(self) -> records.Definition:
        definition = self.create_calls[0].invoke.definition
        assert definition is not None
        return definition

    @property
    def name(self) -> str:
        """The id of the job, or its label where the id is not known."""
        if self.job is not None:
            return self.job.job
        return next((call.ok.job for call in self.create_calls if call.ok and call.ok.job), self.label)

    @property
    def owner(self) -> str:
        return self.create_calls[0].invoke.owner

    @property
    def accepted(self) -> bool:
        return any(call.ok for call in self.create_calls)

    @property
    def may_exist(self) -> bool:
        return any(call.may_have_taken_effect for call in self.create_calls)

    @property
    def requested_at(self) -> float:
        """The time before which it cannot exist."""
        return min(call.began_at for call in self.create_calls)

    @property
    def accepted_at(self) -> float:
        """The time from which it certainly exists."""
        return min(call.done_at for call in self.create_calls)

    @property
    def recurring(self) -> bool:
        return is_recurring(self.definition)

    def calls_of(self, *actions: records.Action) -> list[RecordedCall]:
        """The calls of some kinds that may have taken effect, in order."""
        return [call for call in self.calls if call.invoke.action in actions and call.may_have_taken_effect]


class Recording:
    """All lines of a history, grouped."""

    def __init__(self, lines: Iterable[records.Line]) -> None:
        ordered = sorted(lines, key=lambda line: line.at)
        self.setup = next(reversed(_of(records.Setup, ordered)), records.Setup(at=0.0))
        self.closed_at = max((line.at for line in _of(records.Closed, ordered)), default=None)
        self.counts = next(reversed(_of(records.FinalCounts, ordered)), None)
        self.jobs = {job.job: job for job in _of(records.FinalJob, ordered)}
        self.final_runs = _of(records.FinalRun, ordered)  # a run that was stored twice is in it twice
        self.runs = {run.run: run for run in self.final_runs}
        self.skips = _grouped((skip.job, skip) for skip in _of(records.FinalSkip, ordered))
        self.effects = _of(records.Effect, ordered)
        self.leases = _grouped((lease.run, lease) for lease in _of(records.LeaseGranted, ordered))
        self.reports = _grouped((report.run, report) for report in _of(records.ResultReport, ordered))
        self.heartbeats = _grouped((beat.node, beat) for beat in _of(records.HeartbeatTaken, ordered))
        self.nodes_gone = {gone.node: gone.at for gone in reversed(_of(records.NodeGone, ordered))}  # node → first time
        self.deaths = _grouped((died.pid, died.at) for died in _of(records.ProcessDied, ordered))
        self.faults = _of(records.InjectedFault, ordered)
        self.observations = _of(records.Observation, ordered)
        invokes = {invoke.call: invoke for invoke in _of(records.Invoke, ordered)}
        ends = {line.call: line for line in ordered if isinstance(line, records.Ok | records.Fail | records.Info)}
        if unmatched := ends.keys() - invokes.keys():
            raise Invalid(f"the history contains answers of calls without their `invoke` line: {min(unmatched)}")
        self.calls = [RecordedCall(invoke, ends.get(call)) for call, invoke in invokes.items()]

    @cached_property
    def requested(self) -> dict[str, RequestedJob]:
        """Every requested job, by its label."""
        requested: dict[str, RequestedJob] = {}
        for call in self.calls:
            if call.invoke.action is records.Action.CREATE and call.invoke.definition is not None:
                label = call.invoke.definition.label
                requested.setdefault(label, RequestedJob(label)).create_calls.append(call)
        by_job = {
            call.ok.job: one for one in requested.values() for call in one.create_calls if call.ok and call.ok.job
        }
        for run in self.final_runs:
            if (of := by_job.get(run.job) or requested.get(run.label)) is not None:
                of.runs.append(run)
                by_job.setdefault(run.job, of)
        for job in self.jobs.values():
            if (of := by_job.get(job.job) or requested.get(job.label)) is not None:
                of.job = job
                of.skips = self.skips[job.job]
                by_job.setdefault(job.job, of)
        for call in self.calls:
            if call.invoke.action not in (records.Action.CREATE, records.Action.READ):
                about = self.runs.get(call.invoke.run or "")
                subject = call.invoke.job or (about.job if about is not None else None)
                if subject in by_job:
                    by_job[subject].calls.append(call)
        for effect in self.effects:
            if (of := requested.get(effect.label)) is not None:
                (of.starts if effect.event is records.HandlerEvent.START else of.ends).append(effect)
        return requested

    @cached_property
    def starts(self) -> list[records.Effect]:
        return [effect for effect in self.effects if effect.event is records.HandlerEvent.START]

    @cached_property
    def spans(self) -> dict[str, list[HandlerSpan]]:
        """The handlers of each run, by fence."""
        ends: dict[tuple[str, int], records.Effect] = {}
        for effect in self.effects:
            if effect.event is not records.HandlerEvent.START:
                ends.setdefault((effect.run, effect.fence), effect)
        attempts = {(run.run, attempt.fence): attempt for run in self.final_runs for attempt in run.attempts}
        spans: defaultdict[str, list[HandlerSpan]] = defaultdict(list)
        for start in self.starts:
            key = start.run, start.fence
            spans[start.run].append(HandlerSpan(start, ends.get(key), attempts.get(key)))
        return {run: sorted(of, key=lambda span: span.start.fence) for run, of in spans.items()}

    @cached_property
    def blocked_keys(self) -> set[tuple[str, str | None]]:
        """Owners and ordering keys that are blocked by an unresolved failure."""
        return {
            (requested.owner, requested.definition.ordering_key)
            for requested in self.requested.values()
            if requested.definition.ordering_key is not None and requested.definition.on_failure == "block"
            if any(run.status == "failed" and run.resolution is None for run in requested.runs)
        }

    # --- faults

    @cached_property
    def _fault_periods(self) -> list[tuple[float, float]]:
        """The times of faults and of the recovery after them, as disjoint intervals."""
        merged: list[tuple[float, float]] = []
        for fault in self.faults:
            end = max(fault.at, fault.until or fault.at) + self.setup.recovery
            if merged and fault.at <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], end)
            else:
                merged.append((fault.at, end))
        return merged

    def recovered_at(self, moment: float) -> float:
        """The first moment from this one on at which the last fault is recovered from."""
        at = bisect_right(self._fault_periods, (moment, FOREVER)) - 1
        return max(moment, self._fault_periods[at][1]) if at >= 0 else moment

    def deadline(self, moment: float) -> float:
        """The latest start of what is ready at a moment: the allowed lateness, extended by faults."""
        ready = self.recovered_at(moment)
        while True:
            following = bisect_right(self._fault_periods, (ready, FOREVER))
            if following == len(self._fault_periods) or self._fault_periods[following][0] > ready + self.setup.lateness:
                return ready + self.setup.lateness
            ready = self._fault_periods[following][1]

    def overlaps_fault(self, start: float, end: float) -> bool:
        """Whether there was a fault, or recovery from one, at some time between."""
        return any(began <= end and over >= start for began, over in self._fault_periods)

    # --- bounds

    @property
    def end_at(self) -> float:
        """When the final state was read; 0 without one, so that nothing is expected."""
        return self.closed_at if self.closed_at is not None else 0.0

    @property
    def judged_to(self) -> float:
        """The moment up to which due runs must have started and ended."""
        return self.end_at - self.setup.recovery - self.setup.lateness


def is_recurring(definition: records.Definition) -> bool:
    schedule = definition.schedule
    if isinstance(schedule, str):
        words = schedule.split()
        return words != ["now"] and (len(words) >= 5 or not schedule.strip()[:4].isdigit())
    return schedule.get("type") not in ("now", "at")


def _of(kind: type[T], lines: Iterable[object]) -> list[T]:
    """Return the lines of one kind, in order."""
    return [line for line in lines if isinstance(line, kind)]


def _grouped(pairs: Iterable[tuple[K, T]]) -> defaultdict[K, list[T]]:
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
