"""What is judged, and what can be found wrong with it, as frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from horae.core.events import EventKind
from horae.core.model import Attempt, Backfill, Job, JobId, Run, RunId, Skip


class Code(StrEnum):
    """The promises that a history can break."""

    # slots
    SLOT_MISSING = "slot_missing"  # nothing says what became of it
    SLOT_TWICE = "slot_twice"
    SLOT_UNPLANNED = "slot_unplanned"  # a run for a time that its schedule does not have, or not any more
    SLOT_MISCOUNTED = "slot_miscounted"  # a skipped range does not hold as many slots as it says
    SKIPPED_WITHOUT_CAUSE = "skipped_without_cause"
    # runs
    EARLY_START = "early_start"
    LATE_START = "late_start"  # later than `start_within_seconds` allows
    COMMITTED_TWICE = "committed_twice"
    MOVED_AFTER_END = "moved_after_end"
    CANCELLED_YET_STARTED = "cancelled_yet_started"
    # attempts
    ATTEMPTS_OVERLAP = "attempts_overlap"
    ATTEMPT_HOLE = "attempt_hole"
    FENCE_REUSED = "fence_reused"
    RETRIED_EARLY = "retried_early"
    GAVE_UP_EARLY = "gave_up_early"
    TRIED_TOO_OFTEN = "tried_too_often"
    # dead letters
    NOT_A_DEAD_LETTER = "not_a_dead_letter"
    BAD_RESOLUTION = "bad_resolution"
    # gates
    OUT_OF_ORDER = "out_of_order"  # of an ordering key
    BLOCK_IGNORED = "block_ignored"  # it ran although a failure before it blocks its ordering key
    OVERLAPPED = "overlapped"  # two runs of a job that may not overlap
    # what only a recorded history can show
    LOST = "lost"  # accepted, and never started
    UNFINISHED = "unfinished"  # neither ended nor at work, long after its time
    SLOW_RECOVERY = "slow_recovery"  # it started too late after a fault was healed
    STALE_RESULT_TAKEN = "stale_result_taken"  # from a worker that had lost its lease
    CANCEL_IGNORED = "cancel_ignored"
    PARAMS_CHANGED = "params_changed"
    LIMIT_EXCEEDED = "limit_exceeded"
    IDEMPOTENCY_BROKEN = "idempotency_broken"
    FOREIGN = "foreign"  # somebody was shown, or given, what belongs to another owner
    UNASKED = "unasked"  # a start that nobody asked for
    DISHONEST = "dishonest"  # it says what the handlers or its own numbers do not
    DELETED_YET_STARTED = "deleted_yet_started"
    OLD_VERSION = "old_version"  # a slot of a schedule that had been replaced


INVARIANTS = {  # as docs/internals/checking.md tells them
    **dict.fromkeys((Code.LOST, Code.UNFINISHED), "I1"),
    **dict.fromkeys((Code.EARLY_START, Code.RETRIED_EARLY), "I2"),
    **dict.fromkeys((Code.LATE_START,), "I3"),
    **dict.fromkeys((Code.ATTEMPTS_OVERLAP, Code.COMMITTED_TWICE, Code.FENCE_REUSED, Code.STALE_RESULT_TAKEN), "I4"),
    **dict.fromkeys((Code.SLOT_MISSING, Code.SLOT_TWICE, Code.SLOT_UNPLANNED, Code.SLOT_MISCOUNTED), "I5"),
    **dict.fromkeys((Code.SKIPPED_WITHOUT_CAUSE,), "I5"),
    **dict.fromkeys((Code.MOVED_AFTER_END,), "I6"),
    **dict.fromkeys((Code.CANCELLED_YET_STARTED, Code.CANCEL_IGNORED), "I7"),
    **dict.fromkeys((Code.ATTEMPT_HOLE, Code.TRIED_TOO_OFTEN), "I8"),
    **dict.fromkeys((Code.NOT_A_DEAD_LETTER, Code.GAVE_UP_EARLY, Code.BAD_RESOLUTION, Code.PARAMS_CHANGED), "I9"),
    **dict.fromkeys((Code.OUT_OF_ORDER, Code.BLOCK_IGNORED, Code.OVERLAPPED), "I10"),
    **dict.fromkeys((Code.LIMIT_EXCEEDED,), "I11"),
    **dict.fromkeys((Code.IDEMPOTENCY_BROKEN,), "I12"),
    **dict.fromkeys((Code.FOREIGN,), "I13"),
    **dict.fromkeys((Code.UNASKED,), "I15"),
    **dict.fromkeys((Code.SLOW_RECOVERY,), "I18"),
    **dict.fromkeys((Code.DISHONEST,), "I19"),
    **dict.fromkeys((Code.DELETED_YET_STARTED, Code.OLD_VERSION), "I20"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One promise that one job or run shows to be broken."""

    code: Code
    subject: str  # `job_…`, `run_…`, or the label of a job whose id nobody knows
    detail: str

    @property
    def invariant(self) -> str:
        """Which of the checker's invariants it breaks, for example `I5`."""
        return INVARIANTS[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How exactly times of different clocks can be compared."""

    early: timedelta = timedelta(milliseconds=1)  # a start is early from here on
    skew: timedelta = timedelta(milliseconds=250)  # between the clocks of two nodes
    lead: timedelta = timedelta(seconds=1)  # how long before its time a worker may claim a run
    call: timedelta = timedelta(seconds=10)  # how long a call to the store may be under way, and its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the store said of the end of a run, and when: a result may have waited for the store to answer again."""

    kind: EventKind
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a store knows about its jobs and runs at one moment."""

    now: datetime
    since: datetime | None = None  # what lies before is not complete, and not judged; None: everything is kept
    jobs: Sequence[Job] = ()  # the recurring ones
    runs: Sequence[Run] = ()
    attempts: Mapping[RunId, Sequence[Attempt]] = field(default_factory=dict)  # that did not succeed
    skips: Sequence[Skip] = ()
    backfills: Sequence[Backfill] = ()
    dead_letters: frozenset[RunId] = frozenset()  # as the store lists them
    told: Mapping[RunId, Told] = field(default_factory=dict)  # of ends, where that is known


def of_run(code: Code, run: Run, detail: str) -> Violation:
    return Violation(code=code, subject=run_name(run.id), detail=detail)


def of_job(code: Code, job: Job, detail: str) -> Violation:
    return Violation(code=code, subject=job_name(job.id), detail=detail)


def run_name(run_id: RunId) -> str:
    return f"run_{run_id}"


def job_name(job_id: JobId) -> str:
    return f"job_{job_id}"
