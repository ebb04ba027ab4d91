"""The slots of a recurring job: each is accounted for exactly once, by a run, a skip, or what is still to come.

The store keeps the schedule that holds now, not those before. So whether a slot is missing can be told from the last
change of the job on; whether one is told twice, for as long as it is kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from horae.core.events import EventKind
from horae.core.model import Backfill, Job, JobStatus, Overlap, Reason, Run, RunId, Skip, State, Trigger
from horae.core.schedule.evaluate import count_between, next_after, skipped_in_gaps
from horae.core.schedule.timestamps import rfc3339
from horae.ports.reader import Ledger
from horae.proof.checking.findings import Code, Told, Tolerance, Violation, of_job, of_run, run_name

_TICK = timedelta(microseconds=1)


def first_judged(job: Job, since: datetime | None) -> datetime:
    """After this moment every slot is expected: the job was made, or last changed, and its history is kept."""
    begin = job.created_at if job.revision == 1 else job.updated_at
    return begin if since is None else max(begin, since)


def last_judged(job: Job, now: datetime) -> datetime:
    """Up to this moment every slot is decided."""
    if job.status is JobStatus.CANCELLED:
        return min(job.updated_at, now)
    if job.next_fire_at is None or job.status is JobStatus.FINISHED:
        return now
    return min(job.next_fire_at - _TICK, now)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Some slots with one fate, both ends included."""

    start: datetime
    end: datetime
    count: int | None  # None where nobody has counted
    teller: str  # who says so, in words


class SlotJudge:
    """Goes through the ledger of a job from its oldest page to its newest."""

    def __init__(self, job: Job, *, now: datetime, since: datetime | None, tolerance: Tolerance) -> None:
        self._job = job
        self._now = now
        self._since = since
        self._tolerance = tolerance
        self._from = first_judged(job, since)
        self._to = last_judged(job, now)
        self._told_to = self._from  # every expected slot up to here was told
        self._read_to: datetime | None = None
        self._going: list[Run] = []  # started runs that may still be going at the times to come
        self._gaps: list[datetime] = []

    def read(self, page: Ledger, *, end: datetime) -> Iterator[Violation]:
        """Judge what the ledger tells of the slots after those read before, up to `end`."""
        runs = [run for run in page.runs if run.slot is not None and self._is_next(run.slot, end)]
        ranges = [skipped for skipped in page.skips if self._is_next(skipped.start, end)]
        backfills = [backfill for backfill in page.backfills if self._is_next(backfill.start, end)]
        self._read_to = end
        yield from self._single(runs)
        yield from self._caused(runs)
        self._gaps += [skipped.start for skipped in ranges if skipped.reason is Reason.DST_GAP]
        for entry in sorted(self._entries(runs, ranges, backfills), key=lambda entry: (entry.start, entry.end)):
            yield from self._tell(entry)

    def end(self) -> Iterator[Violation]:
        """What is missing at the end."""
        following = next_after(self._job.schedule, self._told_to)
        if following is not None and following <= self._to:
            yield self._missing(following, self._to + _TICK)
        yield from self._gap_violations()

    def _is_next(self, moment: datetime, end: datetime) -> bool:
        return moment <= end and (self._read_to is None or moment > self._read_to)

    # --- the sweep

    def _entries(self, runs: Sequence[Run], skips: Sequence[Skip], backfills: Sequence[Backfill]) -> Iterator[_Entry]:
        for slot, same in groupby(sorted(runs, key=_slot), key=_slot):
            valid = _valid(list(same))
            if any(run.revision == self._job.revision for run in valid) or self._is_slot(slot):
                yield _Entry(slot, slot, 1, run_name(valid[-1].id))
        for skipped in skips:
            if skipped.reason is not Reason.DST_GAP:
                yield _Entry(skipped.start, skipped.end, skipped.count, f"a skip ({skipped.reason})")
        for backfill in backfills:
            if backfill.trigger is Trigger.SCHEDULE:
                yield _Entry(backfill.start, backfill.end, None, "a catch-up that is under way")

    def _tell(self, entry: _Entry) -> Iterator[Violation]:
        if entry.end <= self._from:
            return
        if entry.start <= self._from:  # cut by the border of what is judged
            self._told_to = max(self._told_to, entry.end)
            return
        if entry.start <= self._told_to:
            yield self._violation(Code.SLOT_TWICE, f"{_at(entry.start)} is told by {entry.teller}, and by another")
            self._told_to = max(self._told_to, entry.end)
            return
        expected = next_after(self._job.schedule, self._told_to)
        if expected is None or expected > entry.start:
            detail = f"{_at(entry.start)}, told by {entry.teller}, is no slot of its schedule"
            yield self._violation(Code.SLOT_UNPLANNED, detail)
            return
        if expected < entry.start and expected <= self._to:
            yield self._missing(expected, min(entry.start, self._to + _TICK))
        self._told_to = entry.end
        yield from self._counted(entry)

    def _missing(self, first: datetime, end: datetime) -> Violation:
        count = count_between(self._job.schedule, first, end)
        if count <= 1:
            return self._violation(Code.SLOT_MISSING, f"nothing says what became of the slot {_at(first)}")
        return self._violation(Code.SLOT_MISSING, f"nothing says what became of {count} slots from {_at(first)} on")

    def _counted(self, entry: _Entry) -> Iterator[Violation]:
        if entry.count is None or entry.start == entry.end:
            return
        count = count_between(self._job.schedule, entry.start, entry.end + _TICK)
        if count != entry.count:
            detail = f"{entry.teller} from {_at(entry.start)} to {_at(entry.end)} says {entry.count} slots, not {count}"
            yield self._violation(Code.SLOT_MISCOUNTED, detail)

    def _gap_violations(self) -> Iterator[Violation]:
        """Slots that a clock change swallowed are told one by one."""
        told = sorted(gap for gap in self._gaps if self._from < gap <= self._to)
        for gap, same in groupby(told):
            if len(list(same)) > 1:
                yield self._violation(
                    Code.SLOT_TWICE, f"the slot that a clock change swallowed {_at(gap)} is told twice"
                )
        for gap in skipped_in_gaps(self._job.schedule, self._from, self._to):
            if gap not in told:
                detail = f"nothing tells of the slot that a clock change swallowed {_at(gap)}"
                yield self._violation(Code.SLOT_MISSING, detail)

    # --- runs of the schedule

    def _single(self, runs: Sequence[Run]) -> Iterator[Violation]:
        """One run for each slot, none before its slot, none of a job that is over, none that will come again."""
        for slot, same in groupby(sorted(runs, key=_slot), key=_slot):
            valid = _valid(list(same))
            if len(valid) > 1:
                names = ", ".join(run_name(run.id) for run in valid)
                yield self._violation(Code.SLOT_TWICE, f"{_at(slot)} has the runs {names}")
            for run in valid:
                yield from self._planned(run, slot)

    def _planned(self, run: Run, slot: datetime) -> Iterator[Violation]:
        job = self._job
        if run.due_at < slot:
            yield of_run(Code.SLOT_UNPLANNED, run, f"it is due {_at(run.due_at)}, before its slot {_at(slot)}")
        over = job.status is JobStatus.CANCELLED and run.created_at > job.updated_at + self._tolerance.call
        if over:
            yield of_run(Code.SLOT_UNPLANNED, run, f"it was made {_at(run.created_at)}, after its job was cancelled")
        gives_way = run.revision < job.revision and _gave_way(run)
        coming = job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED) and not gives_way
        if coming and job.next_fire_at is not None and slot >= job.next_fire_at:
            detail = f"{_at(slot)} has {run_name(run.id)}, and will be planned once more"
            yield self._violation(Code.SLOT_TWICE, detail)

    def _caused(self, runs: Sequence[Run]) -> Iterator[Violation]:
        """A slot is skipped as overlapping only where another run of the job was going at its time."""
        for run in sorted(runs, key=lambda run: run.due_at):
            self._going = [other for other in self._going if may_be_going(other, run.due_at, self._tolerance)]
            if is_overlap(run) and not any(was_going(other, run, self._tolerance) for other in self._going):
                yield unexplained(run)
            if run.first_started_at is not None or run.crashes:
                self._going.append(run)

    def _is_slot(self, moment: datetime) -> bool:
        return next_after(self._job.schedule, moment - _TICK) == moment

    def _violation(self, code: Code, detail: str) -> Violation:
        return of_job(code, self._job, detail)


def is_overlap(run: Run) -> bool:
    return run.state is State.SKIPPED and run.reason is Reason.OVERLAP


def unexplained(run: Run) -> Violation:
    """A skip for an overlap with nothing."""
    detail = f"it was skipped as overlapping, but no run of its job was going {_at(run.due_at)}"
    return of_run(Code.SKIPPED_WITHOUT_CAUSE, run, detail)


def was_going(other: Run, run: Run, tolerance: Tolerance) -> bool:
    """Whether another run of the job was going at the time of this one."""
    return had_begun(other, run, tolerance) and may_be_going(other, run.due_at, tolerance)


def was_untold(other: Run, run: Run, told: Mapping[RunId, Told], tolerance: Tolerance) -> bool:
    """Whether another run of the job was still going by all that the store knew when this one was skipped.

    Its result waited for the store to answer. The slot was looked at when it was due, or later, and decided on after
    the answer to that look.
    """
    end, skipped = told.get(other.id), told.get(run.id)
    if end is None or skipped is None or skipped.kind is not EventKind.RUN_SKIPPED or run.finished_at is None:
        return False
    looked_at = max(run.due_at, run.finished_at - tolerance.call)
    return had_begun(other, run, tolerance) and end.at >= looked_at - tolerance.skew


def had_begun(other: Run, run: Run, tolerance: Tolerance) -> bool:
    """Whether another run of the job had begun by the time of this one; a start may be lost with its worker."""
    if other.id == run.id or run.spec.policy.overlap is Overlap.ALLOW:
        return False
    if other.first_started_at is not None and other.first_started_at <= run.due_at + tolerance.skew:
        return True
    return other.crashes > 0 and other.due_at <= run.due_at


def may_be_going(run: Run, moment: datetime, tolerance: Tolerance) -> bool:
    """Whether a run had not ended by a moment."""
    return run.finished_at is None or run.finished_at >= moment - tolerance.skew


def _valid(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of one slot, but for those that gave way to one of a later revision."""
    latest = max(run.revision for run in runs)
    return [run for run in runs if run.revision == latest or not _gave_way(run)]


def _gave_way(run: Run) -> bool:
    unstarted = run.first_started_at is None and run.state in (State.CANCELLED, State.SKIPPED)
    return unstarted or run.stop is not None


def _slot(run: Run) -> datetime:
    assert run.slot is not None
    return run.slot


def _at(moment: datetime) -> str:
    return f"at {rfc3339(moment)}"
