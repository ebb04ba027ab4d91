"""Planning as pure functions: which runs, skips and backfills the slots of a job become."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.decisions.release import gate_of
from horae.core.events import EventKind
from horae.core.ids import NewId
from horae.core.lifecycle import has_begun
from horae.core.model import Backfill, Job, JobStatus, Misfire, Reason, Run, RunId, Skip, Trigger
from horae.core.schedule.evaluate import (
    SlotRange,
    follows_zone,
    jittered,
    last_before,
    next_after,
    range_between,
    skipped_in_gaps,
    slots_until,
)
from horae.core.schedule.timestamps import TICK
from horae.core.values import Value, replace

MISSED_AFTER = timedelta(seconds=5)  # a slot that is not fired within this time is missed
MAX_UNSTARTED = 50  # runs of one job that may wait to be started
REFILL = 2 / 3  # a planner plans again when less than this share of the horizon is fired ahead
LONGEST_HORIZON = timedelta(hours=1)  # no planner fires further ahead than this
ZONES_MOVE = timedelta(hours=3)  # the most that a new time zone database moves a slot forward
ZONES_LOOK = ZONES_MOVE + 2 * LONGEST_HORIZON  # how long before a slot it is computed again
FINISH_CHECK = timedelta(seconds=2)


class Firing(Value, frozen=True, kw_only=True):
    """What planning a job once results in; applied only if `job.next_fire_at` and its revision are still the same."""

    job: Job
    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    backfill: Backfill | None = None
    next_fire_at: datetime | None
    plan_at: datetime | None
    status: JobStatus = JobStatus.SCHEDULED
    event: EventKind | None = None


class Due(Value, frozen=True, kw_only=True):
    """A job to plan, with the numbers of its unstarted and live runs, both counted up to MAX_UNSTARTED."""

    job: Job
    unstarted: int = 0
    live: int = 0


def fire(due: Due, *, now: datetime, horizon: timedelta, new_id: NewId, refill: float = REFILL) -> Firing:
    """Account for every slot of the job up to `now + horizon`: as a run, as a skip, or as a backfill.

    It is planned again when less than the share `refill` of the horizon is left.
    """
    job = due.job
    if job.next_fire_at is None:
        return _finish(due, now)
    room = MAX_UNSTARTED - due.unstarted
    if room <= 0:
        gaps = _gap_skips(job, job.next_fire_at)
        return Firing(job=job, skips=gaps, next_fire_at=job.next_fire_at, plan_at=now + timedelta(seconds=1))
    if (moved := _brought_forward(job, now)) is not None:
        plan_at = _plan_at(job, moved, now, horizon, refill)
        return Firing(job=job, skips=_gap_skips(job, moved), next_fire_at=moved, plan_at=plan_at)
    missed_before = now - MISSED_AFTER
    caught_up = CaughtUp() if job.next_fire_at >= missed_before else _missed(job, missed_before, now, new_id)
    slots, following = _timely(job, missed_before, now + horizon, room - len(caught_up.runs))
    runs = caught_up.runs + tuple(_occurrence(job, slot, now, new_id) for slot in slots)
    return Firing(
        job=job,
        runs=runs,
        skips=caught_up.skips + _gap_skips(job, following or now + horizon),
        backfill=caught_up.backfill,
        next_fire_at=following,
        plan_at=_plan_at(job, following, now, horizon, refill),
    )


def may_repeat(firing: Firing) -> bool:
    """Whether slots of a firing may have runs already, because the job was changed.

    A change retracts the waiting runs and rewinds the job to the first of them, so that they are planned again. Runs of
    later slots may stay: one that was cancelled early, or that a node holds.
    """
    changed_at = firing.job.updated_at
    changed = changed_at > firing.job.created_at
    return changed and any(run.slot is not None and run.slot < changed_at + LONGEST_HORIZON for run in firing.runs)


def without_filled(runs: Sequence[Run], there: Sequence[Run]) -> tuple[Run, ...]:
    """The runs without those for slots that have a run already; only runs of the schedule are removed.

    A held run that is cancelled before its start does not count: the schedule that it belongs to has been replaced.
    """
    slots = {run.slot for run in there if has_begun(run) or run.stop is not Reason.CANCELLED}
    return tuple(run for run in runs if run.trigger is not Trigger.SCHEDULE or run.slot not in slots)


def _finish(due: Due, now: datetime) -> Firing:
    """A job without further slots is finished when its last run is."""
    done = due.live == 0
    return Firing(
        job=due.job,
        next_fire_at=None,
        plan_at=None if done else now + FINISH_CHECK,
        status=JobStatus.FINISHED if done else JobStatus.SCHEDULED,
        event=EventKind.JOB_FINISHED if done else None,
    )


def _timely(job: Job, since: datetime, until: datetime, room: int) -> tuple[list[datetime], datetime | None]:
    """The slots from `since` to `until` that there is room for, and the first slot after them."""
    assert job.next_fire_at is not None
    # `next_fire_at` may lie in a DST gap, where a change of the job retracted the skip.
    return slots_until(job.schedule, max(job.next_fire_at, since), until, room)


def _brought_forward(job: Job, now: datetime) -> datetime | None:
    """The next slot, if a new time zone database moved it forward; else None.

    Only slots beyond the longest horizon are certainly not accounted for. A slot that is moved backward needs no care,
    because slots are computed from the old time on. One that is further away than ZONES_MOVE is that of another day.
    """
    slot, earliest = job.next_fire_at, now + LONGEST_HORIZON
    assert slot is not None
    if slot <= earliest or not follows_zone(job.schedule) or next_after(job.schedule, slot - TICK) == slot:
        return None
    return last_before(job.schedule, slot, not_before=max(slot - ZONES_MOVE, earliest))


def _plan_at(job: Job, following: datetime | None, now: datetime, horizon: timedelta, refill: float) -> datetime:
    if following is None:
        return now + FINISH_CHECK
    if following > now + ZONES_LOOK and follows_zone(job.schedule):
        return following - ZONES_LOOK
    if following > now + horizon:
        return following - horizon * refill
    # A fast job is refilled when a third of the horizon is used, so that another planner has time to take over.
    return now + max((following - now) * (1 - refill), timedelta(seconds=0.5))


class CaughtUp(Value, frozen=True, kw_only=True):
    """What a range of missed slots becomes."""

    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    backfill: Backfill | None = None


def _missed(job: Job, missed_before: datetime, now: datetime, new_id: NewId) -> CaughtUp:
    """What the missed slots become: those beyond `catchup` are skipped, the others follow the misfire policy."""
    assert job.next_fire_at is not None
    oldest_kept = min(max(job.next_fire_at, now - job.spec.policy.catchup), missed_before)
    too_late = _skip(job, job.next_fire_at, oldest_kept, Reason.TOO_LATE)
    kept = catch_up(job, oldest_kept, missed_before, job.spec.policy.misfire, Reason.MISFIRE, now, new_id)
    return replace(kept, skips=too_late + kept.skips)


def catch_up(
    job: Job, start: datetime, end: datetime, misfire: Misfire, reason: Reason, now: datetime, new_id: NewId
) -> CaughtUp:
    """Apply a misfire policy to the slots with `start <= slot < end`; what does not run is skipped for `reason`."""
    missed = range_between(job.schedule, start, end)
    if missed is None:
        return CaughtUp()
    match misfire:
        case Misfire.SKIP:
            return CaughtUp(skips=_skip(job, start, end, reason))
        case Misfire.ONCE:
            newest = _occurrence(job, missed.last, now, new_id)
            return CaughtUp(runs=(newest,), skips=_skip(job, start, missed.last, reason))
        case Misfire.ALL:
            return CaughtUp(backfill=new_backfill(job, missed, Trigger.SCHEDULE, now, new_id()))


def new_backfill(job: Job, slots: SlotRange, trigger: Trigger, now: datetime, backfill_id: str) -> Backfill:
    """A backfill that planners start at once."""
    return Backfill(
        id=backfill_id,
        job_id=job.id,
        trigger=trigger,
        start=slots.first,
        end=slots.last,
        plan_at=now,
        created_at=now,
    )


def _skip(job: Job, start: datetime, end: datetime, reason: Reason) -> tuple[Skip, ...]:
    """The slots with `start <= slot < end` as one skip, if there are any."""
    slots = range_between(job.schedule, start, end)
    return () if slots is None else (skip_of(job, slots, reason),)


def skip_of(job: Job, slots: SlotRange, reason: Reason) -> Skip:
    """A range of slots that do not run."""
    return Skip(
        job_id=job.id, revision=job.revision, start=slots.first, end=slots.last, count=slots.count, reason=reason
    )


def gap_skips(job: Job, since: datetime, until: datetime) -> tuple[Skip, ...]:
    """The slots that `gap: skip` drops in DST gaps, with `since < slot <= until`."""
    gaps = skipped_in_gaps(job.schedule, since, until)
    return tuple(skip_of(job, SlotRange(slot, slot, 1), Reason.DST_GAP) for slot in gaps)


def _gap_skips(job: Job, until: datetime) -> tuple[Skip, ...]:
    """The slots in DST gaps since the last slot that is accounted for, or since the job was written.

    A job that was just written has its `plan_at` at the time of the write, and every firing sets a later one.
    """
    since = job.updated_at if job.plan_at == job.updated_at else job.next_fire_at
    assert since is not None
    return gap_skips(job, since, until)


def _occurrence(job: Job, slot: datetime, now: datetime, new_id: NewId, trigger: Trigger = Trigger.SCHEDULE) -> Run:
    # A backfill by a user is due when it is requested, so it is never late; its slot only says which one it is for.
    due_at = now if trigger is Trigger.BACKFILL else jittered(job.schedule, job.id, slot)
    return Run(
        id=RunId(new_id()),
        job_id=job.id,
        owner=job.owner,
        created_by=job.created_by,
        spec=job.spec,
        trigger=trigger,
        slot=slot,
        due_at=due_at,
        wake_at=max(due_at, now),
        gate=gate_of(job.spec, job.id, job.owner, recurring=True),
        revision=job.revision,
        created_at=now,
    )


class Page(Value, frozen=True, kw_only=True):
    """The next runs of a backfill; applied only if `backfill.start` is still the same."""

    backfill: Backfill
    runs: tuple[Run, ...]
    start: datetime | None  # the next slot; None when the backfill is done
    plan_at: datetime
    skips: tuple[Skip, ...] = ()  # of slots without runs


def fill(backfill: Backfill, due: Due, *, now: datetime, new_id: NewId) -> Page:
    """Turn the oldest slots of a backfill into runs, at most until MAX_UNSTARTED runs of the job wait."""
    room = max(MAX_UNSTARTED - due.unstarted, 0)
    runs: list[Run] = []
    slot: datetime | None = backfill.start
    while slot is not None and slot <= backfill.end and len(runs) < room:
        runs.append(_occurrence(due.job, slot, now, new_id, backfill.trigger))
        slot = next_after(due.job.schedule, slot)
    following = slot if slot is not None and slot <= backfill.end else None
    return Page(backfill=backfill, runs=tuple(runs), start=following, plan_at=now + timedelta(seconds=1))
