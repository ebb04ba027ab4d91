"""Checks that each slot of a recurring job is accounted for exactly once: by a run, a skip, or a pending catch-up.

Every change of a job extends the trail of its schedules, so missing slots are found from before a change as well, as
far back as the history is kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from horae.core.events import EventKind
from horae.core.model import Backfill, Job, JobStatus, Overlap, Reason, Run, RunId, Skip, State, Trigger
from horae.core.records import ScheduleTrail
from horae.ports.reader import Ledger
from horae.proof.checking.findings import Code, EndEvent, Tolerance, Violation, at, of_job, of_run, run_name
from horae.proof.checking.store.timeline import Timeline

_TICK = timedelta(microseconds=1)

RunsBySlot = Sequence[tuple[datetime, Sequence[Run]]]  # without those that a later revision replaced


def first_judged(timeline: Timeline, since: datetime | None) -> datetime:
    """The moment after which every slot is expected: the schedules of the job are known, and its history is kept."""
    return timeline.begin if since is None else max(timeline.begin, since)


def last_judged(job: Job, now: datetime) -> datetime:
    """The moment up to which every slot must have been decided."""
    if job.status is JobStatus.CANCELLED:
        return min(job.updated_at, now)
    if job.next_fire_at is None or job.status is JobStatus.FINISHED:
        return now
    return min(job.next_fire_at - _TICK, now)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A range of slots, both ends included, that one row accounts for."""

    start: datetime
    end: datetime
    count: int | None  # None where the row has no count
    source: str  # the row, for messages
    may_give_way: bool = False  # a run that never started: a later skip or catch-up may include its slot again


class SlotJudge:
    """Judges the ledger of a job page by page, oldest first."""

    def __init__(
        self, job: Job, trail: ScheduleTrail | None, *, now: datetime, since: datetime | None, tolerance: Tolerance
    ) -> None:
        self._job = job
        self._timeline = Timeline(job, trail)
        self._now = now
        self._since = since
        self._tolerance = tolerance
        self._from = first_judged(self._timeline, since)
        self._to = last_judged(job, now)
        self._known_to = self._from  # every expected slot up to here is accounted for
        self._read_to: datetime | None = None
        self._running: list[Run] = []  # started runs that may still be running at later slots
        self._gaps: list[datetime] = []

    def read(self, page: Ledger, *, end: datetime) -> Iterator[Violation]:
        """Judge the next page, up to `end`."""
        runs = [run for run in page.runs if run.slot is not None and self._is_next(run.slot, end)]
        ranges = [skipped for skipped in page.skips if self._is_next(skipped.start, end)]
        backfills = [backfill for backfill in page.backfills if self._is_next(backfill.start, end)]
        self._read_to = end
        by_slot = [(slot, _valid(list(same))) for slot, same in groupby(sorted(runs, key=_slot), key=_slot)]
        yield from self._single(by_slot)
        yield from self._caused(runs)
        self._gaps += [skipped.start for skipped in ranges if skipped.reason is Reason.DST_GAP]
        for entry in sorted(self._entries(by_slot, ranges, backfills), key=_place):
            yield from self._judge_entry(entry)

    def end(self) -> Iterator[Violation]:
        """Judge what is missing after the last page."""
        following = self._timeline.next_after(self._known_to)
        if following is not None and following <= self._to:
            yield self._missing(following, self._to)
        yield from self._gap_violations()

    def _is_next(self, moment: datetime, end: datetime) -> bool:
        return moment <= end and (self._read_to is None or moment > self._read_to)

    # --- the sweep

    def _entries(self, by_slot: RunsBySlot, skips: Sequence[Skip], backfills: Sequence[Backfill]) -> Iterator[_Entry]:
        for slot, valid in by_slot:
            if self._timeline.is_slot(slot) or any(self._is_unplanned(run.revision, slot) for run in valid):
                yield _Entry(slot, slot, 1, run_name(valid[-1].id), all(map(self._may_give_way, valid)))
        for skipped in skips:
            if skipped.reason is not Reason.DST_GAP:
                yield _Entry(skipped.start, skipped.end, skipped.count, f"a skip ({skipped.reason})")
        for backfill in backfills:
            if backfill.trigger is Trigger.SCHEDULE:
                yield _Entry(backfill.start, backfill.end, None, "a pending catch-up")

    def _judge_entry(self, entry: _Entry) -> Iterator[Violation]:
        if entry.end <= self._from:
            return
        if entry.start <= self._from:  # only partly in the judged time
            self._known_to = max(self._known_to, entry.end)
            return
        if entry.start <= self._known_to:
            if entry.may_give_way:
                return
            detail = f"{at(entry.start)} is accounted for by {entry.source} and by another"
            yield self._violation(Code.SLOT_TWICE, detail)
            self._known_to = max(self._known_to, entry.end)
            return
        expected = self._timeline.next_after(self._known_to)
        if expected is None or expected > entry.start:
            detail = f"{at(entry.start)}, accounted for by {entry.source}, is no slot of its schedule"
            yield self._violation(Code.SLOT_UNPLANNED, detail)
            return
        if expected < entry.start and expected <= self._to:
            yield self._missing(expected, min(entry.start - _TICK, self._to))
        self._known_to = entry.end
        yield from self._counted(entry)

    def _missing(self, first: datetime, last: datetime) -> Violation:
        count = self._timeline.count(first, last)
        which = f"the slot {at(first)}" if count <= 1 else f"{count} slots from {at(first)} on"
        return self._violation(Code.SLOT_MISSING, f"there is neither a run nor a skip for {which}")

    def _counted(self, entry: _Entry) -> Iterator[Violation]:
        if entry.count is None or entry.start == entry.end:
            return
        count = self._timeline.count(entry.start, entry.end)
        if count != entry.count:
            detail = f"{entry.source} from {at(entry.start)} to {at(entry.end)} counts {entry.count} slots, not {count}"
            yield self._violation(Code.SLOT_MISCOUNTED, detail)

    def _gap_violations(self) -> Iterator[Violation]:
        """Check that each slot which falls into a clock change has a skip of its own."""
        recorded = sorted(gap for gap in self._gaps if self._from < gap <= self._to)
        for gap, same in groupby(recorded):
            if len(list(same)) > 1:
                yield self._violation(Code.SLOT_TWICE, f"the slot in the clock change {at(gap)} is skipped twice")
        for gap in self._timeline.skipped_in_gaps(self._from, self._to):
            if gap not in recorded:
                detail = f"there is no skip for the slot in the clock change {at(gap)}"
                yield self._violation(Code.SLOT_MISSING, detail)

    # --- runs of the schedule

    def _single(self, by_slot: RunsBySlot) -> Iterator[Violation]:
        """Check that each slot has one run: not early, not of a cancelled job, not of a slot that fires again."""
        for slot, valid in by_slot:
            if len(valid) > 1:
                names = ", ".join(run_name(run.id) for run in valid)
                yield self._violation(Code.SLOT_TWICE, f"{at(slot)} has the runs {names}")
            for run in valid:
                yield from self._planned(run, slot)

    def _planned(self, run: Run, slot: datetime) -> Iterator[Violation]:
        job = self._job
        if run.due_at < slot:
            yield of_run(Code.SLOT_UNPLANNED, run, f"it is due {at(run.due_at)}, before its slot {at(slot)}")
        if job.status is JobStatus.CANCELLED and run.created_at > job.updated_at + self._tolerance.call:
            detail = f"it was created {at(run.created_at)}, after its job had been cancelled"
            yield of_run(Code.SLOT_UNPLANNED, run, detail)
        replaced = run.revision < job.revision and _was_replaced(run)
        coming = job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED) and not replaced
        if coming and job.next_fire_at is not None and slot >= job.next_fire_at:
            detail = f"{at(slot)} has {run_name(run.id)}, and will fire again"
            yield self._violation(Code.SLOT_TWICE, detail)

    def _caused(self, runs: Sequence[Run]) -> Iterator[Violation]:
        """Check that a slot is skipped as overlapping only if another run of the job was running at its time."""
        for run in sorted(runs, key=lambda run: run.due_at):
            self._running = [other for other in self._running if may_be_running(other, run.due_at, self._tolerance)]
            if is_overlap(run) and not any(was_running(other, run, self._tolerance) for other in self._running):
                yield skipped_without_overlap(run)
            if run.first_started_at is not None or run.crashes:
                self._running.append(run)

    def _may_give_way(self, run: Run) -> bool:
        """Whether it was cancelled before a change of the job, which opened its slot again together with others."""
        return run.revision < self._job.revision and _was_replaced(run)

    def _is_unplanned(self, revision: int, slot: datetime) -> bool:
        """Whether no schedule has it; an earlier one may have planned it before it was replaced."""
        return revision == self._job.revision or self._timeline.is_stray(revision, slot)

    def _violation(self, code: Code, detail: str) -> Violation:
        return of_job(code, self._job, detail)


def _place(entry: _Entry) -> tuple[datetime, bool, datetime]:
    """Where an entry comes in the sweep: a run that gives way comes after the range that includes its slot."""
    return entry.start, entry.may_give_way, entry.end


def is_overlap(run: Run) -> bool:
    return run.state is State.SKIPPED and run.reason is Reason.OVERLAP


def skipped_without_overlap(run: Run) -> Violation:
    """The violation of a run that was skipped as overlapping without another run."""
    detail = f"it was skipped as overlapping, but no run of its job was running {at(run.due_at)}"
    return of_run(Code.SKIPPED_WITHOUT_CAUSE, run, detail)


def was_running(other: Run, run: Run, tolerance: Tolerance) -> bool:
    """Whether another run of the job was running when this one was due."""
    return had_started(other, run, tolerance) and may_be_running(other, run.due_at, tolerance)


def end_was_unknown(other: Run, run: Run, events: Mapping[RunId, EndEvent], tolerance: Tolerance) -> bool:
    """Whether the store did not know the end of another run of the job when this one was skipped.

    The result was waiting for the store to answer. The slot was read when it was due or later, and decided on after
    that read was answered.
    """
    end, skipped = events.get(other.id), events.get(run.id)
    if end is None or skipped is None or skipped.kind is not EventKind.RUN_SKIPPED or run.finished_at is None:
        return False
    read_at = max(run.due_at, run.finished_at - tolerance.call)
    return had_started(other, run, tolerance) and end.at >= read_at - tolerance.skew


def had_started(other: Run, run: Run, tolerance: Tolerance) -> bool:
    """Whether another run of the job had started when this one was due; a start may be lost with its worker."""
    if other.id == run.id or run.spec.policy.overlap is Overlap.ALLOW:
        return False
    if other.first_started_at is not None and other.first_started_at <= run.due_at + tolerance.skew:
        return True
    return other.crashes > 0 and other.due_at <= run.due_at


def may_be_running(run: Run, moment: datetime, tolerance: Tolerance) -> bool:
    """Whether a run had not ended at a moment."""
    return run.finished_at is None or run.finished_at >= moment - tolerance.skew


def _valid(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of one slot, without those that a later revision replaced."""
    latest = max(run.revision for run in runs)
    return [run for run in runs if run.revision == latest or not _was_replaced(run)]


def _was_replaced(run: Run) -> bool:
    unstarted = run.first_started_at is None and run.state in (State.CANCELLED, State.SKIPPED)
    return unstarted or run.stop is not None


def _slot(run: Run) -> datetime:
    assert run.slot is not None
    return run.slot
