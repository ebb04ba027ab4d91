"""The ledger of a job: each of its slots once, with its outcome."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from horae.core.lifecycle import FINAL
from horae.core.model import Backfill, Job, JobStatus, Reason, Run, RunId, Skip, State, Trigger
from horae.core.schedule.evaluate import range_between
from horae.core.schedule.timestamps import TICK
from horae.core.schedule.types import Schedule
from horae.ports.reader import Ledger


class SlotOutcome(StrEnum):
    """Whether a slot was run, was skipped, or is still open."""

    RAN = "ran"
    SKIPPED = "skipped"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEntry:
    """A slot, or a range of slots with the same outcome; both ends are slots."""

    start: datetime
    end: datetime
    count: int
    outcome: SlotOutcome
    reason: Reason | None = None
    run_id: RunId | None = None


def slot_entries(job: Job, ledger: Ledger, *, start: datetime, end: datetime, now: datetime) -> list[SlotEntry]:
    """Return the entries of the slots with `start <= slot <= end`, in the order of their ends.

    A skipped range that reaches beyond `start` or `end` is not cut.
    """
    found = [
        *(_of_run(run) for run in _current_runs(ledger.runs)),
        *(_of_skip(skipped) for skipped in ledger.skips),
        *_unfilled(job.schedule, ledger.backfills, start, end),
        *_unfired(job, start, end, now),
    ]
    return sorted(found, key=lambda entry: (entry.end, entry.start))


def one_shot_entries(runs: Sequence[Run]) -> list[SlotEntry]:
    """Return the entries of a one-shot, whose only slot is the time at which it is due."""
    return [_of_run(run) for run in runs]


def _current_runs(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield one run per slot: a run that was stopped before its start is replaced by that of a later revision."""
    latest = {run.slot: run.revision for run in sorted(runs, key=lambda run: run.revision)}
    return (run for run in runs if run.revision == latest[run.slot] or not _stopped_unstarted(run))


def _stopped_unstarted(run: Run) -> bool:
    return run.first_started_at is None and (run.stop is not None or run.state in (State.CANCELLED, State.SKIPPED))


def _of_run(run: Run) -> SlotEntry:
    slot = run.slot or run.due_at
    outcome, reason = _outcome(run)
    return SlotEntry(start=slot, end=slot, count=1, outcome=outcome, reason=reason, run_id=run.id)


def _outcome(run: Run) -> tuple[SlotOutcome, Reason | None]:
    if run.state not in FINAL:
        return SlotOutcome.PENDING, None
    if run.state is State.SKIPPED:
        return SlotOutcome.SKIPPED, run.reason
    if run.state is State.CANCELLED and run.first_started_at is None:
        return SlotOutcome.SKIPPED, Reason.CANCELLED
    return SlotOutcome.RAN, None


def _of_skip(skipped: Skip) -> SlotEntry:
    return SlotEntry(
        start=skipped.start,
        end=skipped.end,
        count=skipped.count,
        outcome=SlotOutcome.SKIPPED,
        reason=skipped.reason,
    )


def _unfilled(schedule: Schedule, backfills: Sequence[Backfill], start: datetime, end: datetime) -> Iterator[SlotEntry]:
    """Yield missed slots that planners are still turning into runs; backfills by users fill no slot."""
    for backfill in backfills:
        if backfill.trigger is Trigger.SCHEDULE:
            yield from _range(schedule, max(backfill.start, start), min(backfill.end, end), SlotOutcome.PENDING)


def _unfired(job: Job, start: datetime, end: datetime, now: datetime) -> Iterator[SlotEntry]:
    """Yield slots that are not accounted for yet: future ones, and those that passed in a pause that still lasts."""
    if job.next_fire_at is None or job.status in (JobStatus.CANCELLED, JobStatus.FINISHED):
        return
    first = max(job.next_fire_at, start)
    if job.status is JobStatus.PAUSED:
        yield from _range(job.schedule, first, min(end, now), SlotOutcome.SKIPPED, Reason.PAUSED)
        first = max(first, now + TICK)
    yield from _range(job.schedule, first, end, SlotOutcome.PENDING)


def _range(
    schedule: Schedule, start: datetime, end: datetime, outcome: SlotOutcome, reason: Reason | None = None
) -> Iterator[SlotEntry]:
    """Yield the slots with `start <= slot <= end` as one entry, if there are any."""
    slots = range_between(schedule, start, end + TICK)
    if slots is not None:
        yield SlotEntry(start=slots.first, end=slots.last, count=slots.count, outcome=outcome, reason=reason)
