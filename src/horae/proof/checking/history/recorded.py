"""A recorded history as a whole: its lines sorted into what belongs together."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from horae.core.errors import Invalid
from horae.proof.checking.history.recording import (
    Action,
    Beat,
    Closed,
    Definition,
    Died,
    Effect,
    Fail,
    Fault,
    FinalAttempt,
    FinalCounts,
    FinalJob,
    FinalRun,
    FinalSkip,
    Gone,
    Happening,
    Info,
    Invoke,
    Lease,
    Line,
    Ok,
    Report,
    Setup,
    Sighting,
)
from horae.proof.checking.history.reference import Slots

FINAL_STATUS = frozenset({"succeeded", "failed", "cancelled", "skipped"})
FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asked, and how that ended; without an end it is as unknown as an Info."""

    invoke: Invoke
    end: Ok | Fail | Info | None = None

    @property
    def ok(self) -> Ok | None:
        return self.end if isinstance(self.end, Ok) else None

    @property
    def may_have_happened(self) -> bool:
        return not isinstance(self.end, Fail)

    @property
    def is_unknown(self) -> bool:
        return self.end is None or isinstance(self.end, Info)

    @property
    def began_at(self) -> float:
        return self.invoke.at

    @property
    def done_at(self) -> float:
        """By when it had happened, if it has."""
        return self.end.at if isinstance(self.end, Ok) else FOREVER

    @property
    def job(self) -> str | None:
        return self.invoke.job or (self.ok.job if self.ok else None)

    @property
    def run(self) -> str | None:
        return self.invoke.run or (self.ok.run if self.ok else None)


@dataclass(frozen=True, slots=True)
class Span:
    """A handler at work: from its START to its end, by whoever knows it."""

    start: Effect
    end: Effect | None  # as the handler noted it
    attempt: FinalAttempt | None  # what became of it, as the final state tells

    @property
    def lost(self) -> bool:
        """Whether its worker lost the lease: from then on another may work beside it."""
        return self.attempt is None or self.attempt.outcome == "lost"

    @property
    def left_alone(self) -> bool:
        """Whether its handler may outlast it: a thread can only be asked to stop, a sleeping worker not even that."""
        return self.attempt is not None and self.attempt.outcome in ("timeout", "released", "cancelled")

    @property
    def ended_at(self) -> float | None:
        """When it ended or stopped counting; None: nobody knows."""
        noted = self.end.at if self.end is not None else None
        told = self.attempt.ended_at if self.attempt is not None else None
        if self.lost:
            return min((moment for moment in (noted, told) if moment is not None), default=None)
        return noted if noted is not None else told


@dataclass(frozen=True, slots=True)
class Version:
    """A definition, with the times between which it may have held, and those between which it surely did."""

    definition: Definition
    possible_from: float
    certain_from: float
    certain_to: float
    possible_to: float
    shown: Mapping[str, Any]  # its schedule as the answer showed it, if anybody wrote that down


@dataclass(slots=True)
class Asked:
    """One job by its label: every call about it, and what came of it."""

    label: str
    creates: list[Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)  # about it or its runs, apart from creates and reads
    runs: list[FinalRun] = field(default_factory=list)
    job: FinalJob | None = None  # of a recurring one
    skips: list[FinalSkip] = field(default_factory=list)
    starts: list[Effect] = field(default_factory=list)  # by label, whatever the ids say
    ends: list[Effect] = field(default_factory=list)
    versions: list[Version] | None = None  # what it was asked to be, once somebody has worked that out
    slots: Slots | None = None  # of a recurring one, once somebody has worked them out

    @property
    def definition(self) -> Definition:
        definition = self.creates[0].invoke.definition
        assert definition is not None
        return definition

    @property
    def owner(self) -> str:
        return self.creates[0].invoke.owner

    @property
    def accepted(self) -> bool:
        return any(call.ok for call in self.creates)

    @property
    def possible(self) -> bool:
        return any(call.may_have_happened for call in self.creates)

    @property
    def asked_at(self) -> float:
        """Before this it cannot be there."""
        return min(call.began_at for call in self.creates)

    @property
    def accepted_at(self) -> float:
        """From here on it is certainly there."""
        return min(call.done_at for call in self.creates)

    @property
    def recurring(self) -> bool:
        return is_recurring(self.definition)

    def of(self, *actions: Action) -> list[Call]:
        """The calls of some kinds that may have happened, in order."""
        return [call for call in self.calls if call.invoke.action in actions and call.may_have_happened]


class Recording:
    """All lines of a history, sorted."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.setup = Setup(at=0.0)
        self.closed_at: float | None = None
        self.counts: FinalCounts | None = None
        self.jobs: dict[str, FinalJob] = {}
        self.finals: list[FinalRun] = []  # a run that is told twice is in it twice
        self.skips: defaultdict[str, list[FinalSkip]] = defaultdict(list)
        self.effects: list[Effect] = []
        self.leases: defaultdict[str, list[Lease]] = defaultdict(list)
        self.reports: defaultdict[str, list[Report]] = defaultdict(list)
        self.beats: defaultdict[str, list[Beat]] = defaultdict(list)  # by node
        self.gone: dict[str, float] = {}  # node → when the first time
        self.deaths: defaultdict[int, list[float]] = defaultdict(list)  # by process
        self.faults: list[Fault] = []
        self.sightings: list[Sighting] = []
        invokes: dict[str, Invoke] = {}
        ends: dict[str, Ok | Fail | Info] = {}
        for line in sorted(lines, key=lambda line: line.at):
            match line:
                case Setup():
                    self.setup = line
                case Invoke():
                    invokes[line.call] = line
                case Ok() | Fail() | Info():
                    ends[line.call] = line
                case Effect():
                    self.effects.append(line)
                case Lease():
                    self.leases[line.run].append(line)
                case Report():
                    self.reports[line.run].append(line)
                case Beat():
                    self.beats[line.node].append(line)
                case Gone():
                    self.gone.setdefault(line.node, line.at)
                case Died():
                    self.deaths[line.pid].append(line.at)
                case Sighting():
                    self.sightings.append(line)
                case Fault():
                    self.faults.append(line)
                case FinalJob():
                    self.jobs[line.job] = line
                case FinalRun():
                    self.finals.append(line)
                case FinalSkip():
                    self.skips[line.job].append(line)
                case FinalCounts():
                    self.counts = line
                case Closed():
                    self.closed_at = line.at
        if unasked := ends.keys() - invokes.keys():
            raise Invalid(f"the history tells the end of calls that it does not tell the beginning of: {min(unasked)}")
        self.calls = [Call(invoke, ends.get(call)) for call, invoke in invokes.items()]
        self.runs = {run.run: run for run in self.finals}

    @cached_property
    def asked(self) -> dict[str, Asked]:
        """Every job that somebody asked for, by its label."""
        asked: dict[str, Asked] = {}
        for call in self.calls:
            if call.invoke.action is Action.CREATE and call.invoke.definition is not None:
                label = call.invoke.definition.label
                asked.setdefault(label, Asked(label)).creates.append(call)
        by_job = {call.ok.job: one for one in asked.values() for call in one.creates if call.ok and call.ok.job}
        for run in self.finals:
            if (of := by_job.get(run.job) or asked.get(run.label)) is not None:
                of.runs.append(run)
                by_job.setdefault(run.job, of)
        for job in self.jobs.values():
            if (of := by_job.get(job.job) or asked.get(job.label)) is not None:
                of.job = job
                of.skips = self.skips[job.job]
                by_job.setdefault(job.job, of)
        for call in self.calls:
            if call.invoke.action not in (Action.CREATE, Action.READ):
                about = self.runs.get(call.invoke.run or "")
                subject = call.invoke.job or (about.job if about is not None else None)
                if subject in by_job:
                    by_job[subject].calls.append(call)
        for effect in self.effects:
            if (of := asked.get(effect.label)) is not None:
                (of.starts if effect.event is Happening.START else of.ends).append(effect)
        return asked

    @cached_property
    def starts(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.event is Happening.START]

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """The handlers of each run at work, by fence."""
        ends: dict[tuple[str, int], Effect] = {}
        for effect in self.effects:
            if effect.event is not Happening.START:
                ends.setdefault((effect.run, effect.fence), effect)
        attempts = {(run.run, attempt.fence): attempt for run in self.finals for attempt in run.attempts}
        spans: defaultdict[str, list[Span]] = defaultdict(list)
        for start in self.starts:
            key = start.run, start.fence
            spans[start.run].append(Span(start, ends.get(key), attempts.get(key)))
        return {run: sorted(of, key=lambda span: span.start.fence) for run, of in spans.items()}

    @cached_property
    def blocked_keys(self) -> set[tuple[str, str | None]]:
        """Owners and ordering keys that wait for somebody to resolve a failure."""
        return {
            (asked.owner, asked.definition.ordering_key)
            for asked in self.asked.values()
            if asked.definition.ordering_key is not None and asked.definition.on_failure == "block"
            if any(run.status == "failed" and run.resolution is None for run in asked.runs)
        }

    # --- faults

    @cached_property
    def _troubles(self) -> list[tuple[float, float]]:
        """When something was broken or recovering, as intervals that do not touch."""
        merged: list[tuple[float, float]] = []
        for fault in self.faults:
            end = max(fault.at, fault.until or fault.at) + self.setup.recovery
            if merged and fault.at <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], end)
            else:
                merged.append((fault.at, end))
        return merged

    def calm_from(self, moment: float) -> float:
        """The first moment from this one on that has been free of faults long enough to be recovered."""
        at = bisect_right(self._troubles, (moment, FOREVER)) - 1
        return max(moment, self._troubles[at][1]) if at >= 0 else moment

    def deadline(self, moment: float) -> float:
        """Until when what is ready at a moment has to start: the lateness allowed, after whatever broke meanwhile."""
        calm = self.calm_from(moment)
        while True:
            following = bisect_right(self._troubles, (calm, FOREVER))
            if following == len(self._troubles) or self._troubles[following][0] > calm + self.setup.lateness:
                return calm + self.setup.lateness
            calm = self._troubles[following][1]

    def is_troubled(self, start: float, end: float) -> bool:
        """Whether something was broken or recovering at some time between."""
        return any(began <= end and over >= start for began, over in self._troubles)

    # --- bounds

    @property
    def end_at(self) -> float:
        """When the final state was read; without one, nothing is expected to be there."""
        return self.closed_at if self.closed_at is not None else 0.0

    @property
    def judged_to(self) -> float:
        """What was due up to here must have started and ended."""
        return self.end_at - self.setup.recovery - self.setup.lateness


def is_recurring(definition: Definition) -> bool:
    schedule = definition.schedule
    if isinstance(schedule, str):
        words = schedule.split()
        return words != ["now"] and (len(words) >= 5 or not schedule.strip()[:4].isdigit())
    return schedule.get("type") not in ("now", "at")
