"""The values that judges take and return: the rows of a store, tolerances, and violations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from horae.core.events import EventKind
from horae.core.model import Attempt, Backfill, Job, JobId, Run, RunId, Skip
from horae.core.records import ScheduleTrail
from horae.core.schedule.timestamps import rfc3339


class Code(StrEnum):
    """Every kind of violation that a judge can report."""

    # slots
    SLOT_MISSING = "slot_missing"  # there is neither a run nor a skip for it
    SLOT_TWICE = "slot_twice"
    SLOT_UNPLANNED = "slot_unplanned"  # a run for a time that its schedule does not have (any more)
    SLOT_MISCOUNTED = "slot_miscounted"  # a skipped range contains another number of slots than recorded
    SKIPPED_WITHOUT_CAUSE = "skipped_without_cause"
    # runs
    EARLY_START = "early_start"
    LATE_START = "late_start"  # later than `start_within_seconds` allows
    COMMITTED_TWICE = "committed_twice"
    MOVED_AFTER_END = "moved_after_end"
    CANCELLED_YET_STARTED = "cancelled_yet_started"
    SUCCEEDED_UNSTARTED = "succeeded_unstarted"
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
    # jobs
    JOB_MISSING = "job_missing"  # there are runs of a job that does not exist
    REVISION_UNKNOWN = "revision_unknown"  # its job never had that revision
    KEY_LOST = "key_lost"  # it is not held by the job that has it, or still held by one that is over
    FOREIGN = "foreign"  # an owner was shown or given what belongs to another
    # visible only in a recorded history
    LOST = "lost"  # accepted, and never started
    UNFINISHED = "unfinished"  # neither ended nor running, long after its due time
    SLOW_RECOVERY = "slow_recovery"  # it started too late after a fault had ended
    STALE_RESULT_TAKEN = "stale_result_taken"  # from a worker that had lost its lease
    CANCEL_IGNORED = "cancel_ignored"
    PARAMS_CHANGED = "params_changed"
    LIMIT_EXCEEDED = "limit_exceeded"
    IDEMPOTENCY_BROKEN = "idempotency_broken"
    UNASKED = "unasked"  # a start that no call requested
    DISHONEST = "dishonest"  # the store contradicts the handlers or its own counters
    DELETED_YET_STARTED = "deleted_yet_started"
    OLD_VERSION = "old_version"  # a slot of a replaced schedule


INVARIANTS = {  # docs/internals/checking.md describes them
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
    **dict.fromkeys((Code.UNASKED, Code.JOB_MISSING), "I15"),
    **dict.fromkeys((Code.SLOW_RECOVERY,), "I18"),
    **dict.fromkeys((Code.DISHONEST, Code.SUCCEEDED_UNSTARTED), "I19"),
    **dict.fromkeys((Code.DELETED_YET_STARTED, Code.OLD_VERSION, Code.REVISION_UNKNOWN), "I20"),
    **dict.fromkeys((Code.KEY_LOST,), "I21"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One guarantee that one job or run breaks."""

    code: Code
    subject: str  # `job_…`, `run_…`, or the label of a job whose id is not known
    detail: str

    @property
    def invariant(self) -> str:
        """The invariant that it breaks, for example `I5`."""
        return INVARIANTS[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much times from different clocks may differ before they count as a violation."""

    early: timedelta = timedelta(milliseconds=1)  # how long before its due time a run may start
    skew: timedelta = timedelta(milliseconds=250)  # between the clocks of two nodes
    lead: timedelta = timedelta(seconds=1)  # how long before its due time a worker may claim a run
    call: timedelta = timedelta(seconds=10)  # how long a call to the store and its answer may take together


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvent:
    """The event of a run's end; its time is when the store got the result, which may be long after `finished_at`."""

    kind: EventKind
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All rows of a store at one moment."""

    now: datetime
    since: datetime | None = None  # rows before this are incomplete and not judged; None: all are there
    jobs: Sequence[Job] = ()  # the recurring ones
    runs: Sequence[Run] = ()
    attempts: Mapping[RunId, Sequence[Attempt]] = field(default_factory=dict)  # the unsuccessful ones
    skips: Sequence[Skip] = ()
    backfills: Sequence[Backfill] = ()
    dead_letters: frozenset[RunId] = frozenset()  # those that the store lists
    trails: Mapping[JobId, ScheduleTrail] = field(default_factory=dict)  # of jobs that were changed
    keys: Mapping[tuple[str, str], JobId] | None = None  # who holds the key of an owner; None: not read
    end_events: Mapping[RunId, EndEvent] = field(default_factory=dict)  # as far as the store still has them


def found(code: Code, subject: str, detail: str) -> Violation:
    return Violation(code=code, subject=subject, detail=detail)


def of_run(code: Code, run: Run, detail: str) -> Violation:
    return found(code, run_name(run.id), detail)


def of_job(code: Code, job: Job, detail: str) -> Violation:
    return found(code, job_name(job.id), detail)


def run_name(run_id: RunId) -> str:
    return f"run_{run_id}"


def job_name(job_id: JobId) -> str:
    return f"job_{job_id}"


def at(moment: datetime | float) -> str:
    """Return a time for messages; a number is seconds since 1970."""
    return f"at {rfc3339(moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC))}"


def duration(length: timedelta | float) -> str:
    """Return a duration for messages; a number is seconds."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 10 else f"{seconds:.1f} s"
