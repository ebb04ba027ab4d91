"""What is judged, and what can be found wrong with it, as frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One promise that one job or run shows to be broken."""

    code: Code
    subject: str  # `job_…` or `run_…`
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How exactly times of different clocks can be compared."""

    early: timedelta = timedelta(milliseconds=1)  # a start is early from here on
    skew: timedelta = timedelta(milliseconds=250)  # between the clocks of two nodes
    claimed: timedelta = timedelta(seconds=2)  # how long a worker may hold a run that it has not started


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


def of_run(code: Code, run: Run, detail: str) -> Violation:
    return Violation(code=code, subject=run_name(run.id), detail=detail)


def of_job(code: Code, job: Job, detail: str) -> Violation:
    return Violation(code=code, subject=job_name(job.id), detail=detail)


def run_name(run_id: RunId) -> str:
    return f"run_{run_id}"


def job_name(job_id: JobId) -> str:
    return f"job_{job_id}"
