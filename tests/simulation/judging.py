"""Whether a life kept the promises: by the store's own account, and by what was seen from outside."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from horae.checking import Checker, Code, Tolerance, Violation
from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Run, RunId, State
from horae.store import JobFilter, RunFilter
from tests.checking.reading import runs_of
from tests.simulation.recording import Answered, Asked, Beaten, Effect, Fault, Gone, Leased, Reported

if TYPE_CHECKING:
    from tests.simulation.life import Life

EARLY = timedelta(milliseconds=1)
EVER = datetime.max.replace(tzinfo=UTC)
MARGIN = timedelta(milliseconds=20)  # between a node's clock and the harness'
HELD_BACK = timedelta(seconds=10)  # how long a worker may hold a run that has no slot: longer when calls are slow
LEAST_FAULTS = 3
LEAST_RUNS = 50


async def judge(life: "Life") -> list[str]:
    """Everything that is wrong; empty when all promises were kept."""
    now, store = life.now(), life.store
    runs = await runs_of(store, RunFilter())
    life.runs = len(runs)
    jobs = await store.list_jobs(JobFilter(), cursor=None, limit=100_000)
    known = {job.id if not isinstance(job, Run) else job.job_id for job in jobs.items}
    seen = Seen(life, runs)
    return [
        *(
            f"{found.code}: {found.subject}: {found.detail}"
            for found in await _found(life)
            if found.code is not Code.SKIPPED_WITHOUT_CAUSE
            or not seen.overlapped(RunId(found.subject.removeprefix("run_")))
        ),
        *seen.vacuous(),
        *seen.lost(known, now),
        *seen.early(),
        *seen.committed(),
        *seen.overlapping(),
        *seen.cancelled(),
    ]


async def _found(life: "Life") -> list[Violation]:
    """What `horae check` tells of the store."""

    async def time() -> datetime:
        return life.now()

    checker = Checker(life.store, pause=0, now=time, tolerance=Tolerance(claimed=HELD_BACK))
    return [violation async for violation in checker.violations()]


@dataclass(frozen=True, slots=True)
class Span:
    """A handler at work, from its start to its end, its stop, or the death of its host."""

    run: RunId
    fence: int
    node: NodeId
    begin: datetime
    end: datetime
    place: int  # in the recording


class Seen:
    """The recording of a life, sorted for its judges."""

    def __init__(self, life: "Life", runs: Sequence[Run]) -> None:
        self._life = life
        self._runs = {run.id: run for run in runs}
        self._effects: defaultdict[RunId, list[Effect]] = defaultdict(list)
        self._reports: defaultdict[RunId, list[Reported]] = defaultdict(list)
        self._leases: defaultdict[RunId, list[Leased]] = defaultdict(list)
        self._beats: defaultdict[NodeId, list[datetime]] = defaultdict(list)
        self._gone: dict[NodeId, datetime] = {}
        self._deaths: defaultdict[str, list[datetime]] = defaultdict(list)
        self._calls: list[tuple[Asked, Answered]] = []
        asked: dict[int, Asked] = {}
        self._places = {id(record): place for place, record in enumerate(life.recording.records)}
        for record in life.recording.records:
            match record:
                case Asked():
                    asked[record.call] = record
                case Answered():
                    self._calls.append((asked[record.call], record))
                case Effect():
                    self._effects[record.run].append(record)
                case Reported():
                    self._reports[record.run].append(record)
                case Leased():
                    self._leases[record.run].append(record)
                case Beaten():
                    self._beats[record.node].append(record.sent_at)
                case Gone():
                    self._gone.setdefault(record.node, record.at)
                case Fault() if record.kind == "crash":
                    self._deaths[record.target].append(record.at)

    def vacuous(self) -> Iterator[str]:
        """A life proves nothing unless enough happened."""
        fired = sum(self._life.faults.fired.faults.values())
        if fired < LEAST_FAULTS or len(self._runs) < LEAST_RUNS:
            yield f"too little happened: {fired} faults and {len(self._runs)} runs"

    def lost(self, known: AbstractSet[str], now: datetime) -> Iterator[str]:
        """What was answered is there, once, and everything that was due has come to its end."""
        made: defaultdict[str, set[str]] = defaultdict(set)
        for call, answer in self._calls:
            if call.action == "create" and answer.outcome == "ok":
                made[call.subject].add(answer.what)
                if answer.what not in known:
                    yield f"lost: {call.subject} was answered as {answer.what}, which is not there"
            if call.action == "run_now" and answer.outcome == "ok" and answer.what not in self._runs:
                yield f"lost: run {answer.what} was answered, and is not there"
        for label, jobs in made.items():
            if len(jobs) > 1:
                yield f"doubled: {label} was made more than once: {sorted(jobs)}"
        for run in self._runs.values():
            if run.state not in FINAL and not run.paused and run.due_at <= now:
                yield f"unfinished: run {run.id} is {run.state}, due at {run.due_at}"
        for run_id in self._effects.keys() - self._runs.keys():
            yield f"lost: run {run_id} started, and is not there"

    def overlapped(self, skipped: RunId) -> bool:
        """Whether a run of the same job was still held when a slot was skipped, by all that the store could know.

        A result that waits for the store to answer again is older than the store's knowledge of it.
        """
        job = self._runs[skipped].job_id
        decided_at = min(report.at for report in self._reports[skipped] if report.accepted)
        others = [run.id for run in self._runs.values() if run.job_id == job and run.id != skipped]
        return any(self._held(run_id, decided_at) for run_id in others)

    def _held(self, run_id: RunId, at: datetime) -> bool:
        leases = [lease.at for lease in self._leases[run_id] if lease.at <= at]
        return bool(leases) and not any(
            leases[-1] < report.at < at for report in self._reports[run_id] if report.accepted
        )

    def early(self) -> Iterator[str]:
        for effects in self._effects.values():
            for effect in effects:
                if effect.event == "START" and effect.at < effect.due - EARLY:
                    yield f"early: run {effect.run} started at {effect.at}, due at {effect.due}"

    def committed(self) -> Iterator[str]:
        """A run has one final state, reached once, and a success was a handler's that came to its end."""
        for run in self._runs.values():
            ends = {
                (report.fence, report.state)
                for report in self._reports[run.id]
                if report.accepted and report.state in FINAL
            }
            if len(ends) > 1:
                yield f"committed twice: run {run.id}: {sorted(ends)}"
            fences = [lease.fence for lease in self._leases[run.id]]
            if any(later <= earlier for earlier, later in pairwise(fences)):
                yield f"fence reused: run {run.id}: {fences}"
            if run.state is State.SUCCEEDED and not any(
                effect.event == "END" and effect.good and effect.fence == run.fence for effect in self._effects[run.id]
            ):
                yield f"made up: run {run.id} succeeded with fence {run.fence}, but no handler did"
            stale = [
                report
                for report in self._reports[run.id]
                if report.accepted
                and any(lease.at < report.at and lease.fence > report.fence for lease in self._leases[run.id])
                and not any(
                    other.accepted
                    and other.at < report.at
                    and (other.fence, other.state) == (report.fence, report.state)
                    for other in self._reports[run.id]
                )
            ]
            for report in stale:
                yield f"stale result taken: run {run.id}, fence {report.fence}, {report.state} at {report.at}"

    def overlapping(self) -> Iterator[str]:
        """Attempts of one run, and runs of one gate, overlap only after the earlier one's lease has run out."""
        lines: defaultdict[str, list[Span]] = defaultdict(list)
        for run_id in self._effects:
            run = self._runs.get(run_id)
            lines[run_id if run is None or run.gate is None else run.gate] += self._spans(run_id)
        for line, spans in lines.items():
            spans.sort(key=lambda span: span.place)
            for place, span in enumerate(spans):
                for other in spans[place + 1 :]:
                    if other.begin < span.end and other.begin + MARGIN < self._leased_until(span.node, other.begin):
                        yield (
                            f"overlap: {line}: run {other.run} (fence {other.fence}) began at {other.begin} "
                            f"beside run {span.run} (fence {span.fence}) of {span.node}, which held its lease"
                        )

    def _spans(self, run_id: RunId) -> Iterator[Span]:
        effects = self._effects[run_id]
        for effect in effects:
            if effect.event == "START":
                ends = [
                    other.at
                    for other in effects
                    if other.event != "START" and (other.fence, other.node) == (effect.fence, effect.node)
                ]
                deaths = self._deaths[effect.host]
                death = deaths[bisect_right(deaths, effect.at) :][:1]
                yield Span(
                    run_id,
                    effect.fence,
                    effect.node,
                    effect.at,
                    min([*ends, *death], default=EVER),
                    self._places[id(effect)],
                )

    def _leased_until(self, node: NodeId, at: datetime) -> datetime:
        """How long a node could be sure of its runs, by what the store had heard of it at that time."""
        beats = [sent_at for sent_at in self._beats[node] if sent_at <= at]
        lease = max(beats) + self._life.timing.dead_after
        return min(lease, self._gone.get(node, EVER))

    def cancelled(self) -> Iterator[str]:
        """What was answered as cancelled never starts again, and what is being cancelled is given to nobody else."""
        for call, answer in self._calls:
            if answer.outcome != "ok" or call.action not in ("cancel_run", "cancel_job"):
                continue
            subject = call.subject
            for run in self._runs.values():
                if run.id == subject and answer.state == "cancelled" and run.one_shot:
                    yield from self._ended_by(run, answer)
                if run.id == subject or (call.action == "cancel_job" and self._is_older(run, call)):
                    yield from self._given_on(run, answer)

    def _is_older(self, run: Run, call: Asked) -> bool:
        return run.job_id == call.subject and run.created_at < call.at - MARGIN

    def _ended_by(self, run: Run, answer: Answered) -> Iterator[str]:
        if run.state is not State.CANCELLED:
            yield f"cancel forgotten: run {run.id} is {run.state}"
        for effect in self._effects[run.id]:
            if effect.event == "START" and effect.at > answer.at:
                yield f"cancel ignored: run {run.id} started at {effect.at}, cancelled at {answer.at}"

    def _given_on(self, run: Run, answer: Answered) -> Iterator[str]:
        fences = {lease.fence for lease in self._leases[run.id] if lease.at > answer.at}
        for effect in self._effects[run.id]:
            if effect.event == "START" and effect.fence in fences:
                yield f"cancel forgotten: run {run.id} was claimed and started after {answer.at}, when it was to stop"
