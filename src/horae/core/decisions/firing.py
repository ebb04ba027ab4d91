"""Planning as pure functions: which runs, skips and backfills the slots of a job become."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.decisions.new_runs import _TICK
from horae.core.decisions.release import gate_of
from horae.core.events import EventKind
from horae.core.ids import NewId
from horae.core.model import Backfill, Job, JobStatus, Misfire, Reason, Run, RunId, Skip, Trigger
from horae.core.schedule.evaluate import (
    count_between,
    follows_zone,
    jittered,
    last_before,
    next_after,
    skipped_in_gaps,
    slots_until,
)
from horae.core.values import Value, replace

MISSED_AFTER = timedelta(seconds=5)  # a slot not fired within this of its time is missed


MAX_UNSTARTED = 50  # runs of one job that may wait to be started


REFILL = 2 / 3  # a planner looks again when less than this share of the horizon is fired ahead


LONGEST_HORIZON = timedelta(hours=1)  # no planner fires further ahead than this


ZONES_MOVE = timedelta(hours=3)  # as far as a new time zone database brings a slot forward


ZONES_LOOK = ZONES_MOVE + 2 * LONGEST_HORIZON  # before a slot it is asked whether it still is one


FINISH_CHECK = timedelta(seconds=2)


class Firing(Value, frozen=True, kw_only=True):
    """What one look at a job leads to; applied only if nobody moved `job.next_fire_at` or its revision meanwhile."""

    job: Job
    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    backfill: Backfill | None = None
    next_fire_at: datetime | None
    plan_at: datetime | None
    status: JobStatus = JobStatus.SCHEDULED
    event: EventKind | None = None  # what listeners are told, if anything


class Due(Value, frozen=True, kw_only=True):
    """A job that a planner should look at, with how many of its runs are alive (both counts stop at MAX_UNSTARTED)."""

    job: Job
    unstarted: int = 0
    live: int = 0


def fire(due: Due, *, now: datetime, horizon: timedelta, new_id: NewId) -> Firing:
    """Account for every slot of the job up to `now + horizon`: as a run, as a skip, or as a backfill."""
    job = due.job
    if job.next_fire_at is None:
        return _finish(due, now)
    room = MAX_UNSTARTED - due.unstarted
    if room <= 0:
        gaps = _gap_skips(job, job.next_fire_at)
        return Firing(job=job, skips=gaps, next_fire_at=job.next_fire_at, plan_at=now + timedelta(seconds=1))
    if (moved := _brought_forward(job, now)) is not None:
        return Firing(
            job=job, skips=_gap_skips(job, moved), next_fire_at=moved, plan_at=_plan_at(job, moved, now, horizon)
        )
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
        plan_at=_plan_at(job, following, now, horizon),
    )


def may_repeat(firing: Firing) -> bool:
    """Whether slots of a firing may have ended runs: a user cancelled them ahead of their time, then the job changed.

    A change takes the waiting runs back and sets the job back to the first of them, so that they are planned again.
    """
    changed_at = firing.job.updated_at
    changed = changed_at > firing.job.created_at
    return changed and any(run.slot is not None and run.slot < changed_at + LONGEST_HORIZON for run in firing.runs)


def without_ended(runs: Sequence[Run], ended: Sequence[Run]) -> tuple[Run, ...]:
    """The runs but for those of slots that have an ended run; manual ones and backfills by users are no such."""
    slots = {run.slot for run in ended}
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
    # `next_fire_at` may be a time that a clock change swallows: where a change of the job took its skip back.
    return slots_until(job.schedule, max(job.next_fire_at, since), until, room)


def _brought_forward(job: Job, now: datetime) -> datetime | None:
    """The slot that the next one has become if a new time zone database brought it forward.

    Nobody has accounted for what is beyond the longest horizon. A slot that such a database puts off needs no care:
    slots are computed from the old time on. One that is further off than zones move is another day's, which is over.
    """
    slot, earliest = job.next_fire_at, now + LONGEST_HORIZON
    assert slot is not None
    if slot <= earliest or not follows_zone(job.schedule) or next_after(job.schedule, slot - _TICK) == slot:
        return None
    return last_before(job.schedule, slot, not_before=max(slot - ZONES_MOVE, earliest))


def _plan_at(job: Job, following: datetime | None, now: datetime, horizon: timedelta) -> datetime:
    if following is None:
        return now + FINISH_CHECK
    if following > now + ZONES_LOOK and follows_zone(job.schedule):
        return following - ZONES_LOOK
    if following > now + horizon:
        return following - horizon * REFILL
    # A fast job is refilled when a third of the horizon is used, so that there is time for another planner to step in.
    return now + max((following - now) / 3, timedelta(seconds=0.5))


class CaughtUp(Value, frozen=True, kw_only=True):
    """What becomes of a range of slots that nobody fired in time."""

    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    backfill: Backfill | None = None


def _missed(job: Job, missed_before: datetime, now: datetime, new_id: NewId) -> CaughtUp:
    """What becomes of the slots that nobody fired in time."""
    assert job.next_fire_at is not None
    oldest_kept = min(max(job.next_fire_at, now - job.spec.policy.catchup), missed_before)
    too_late = _skip(job, job.next_fire_at, oldest_kept, Reason.TOO_LATE)
    kept = catch_up(job, oldest_kept, missed_before, job.spec.policy.misfire, Reason.MISFIRE, now, new_id)
    return replace(kept, skips=too_late + kept.skips)


def catch_up(
    job: Job, start: datetime, end: datetime, misfire: Misfire, reason: Reason, now: datetime, new_id: NewId
) -> CaughtUp:
    """Treat the slots with `start <= slot < end` by a misfire policy; what does not run is skipped for `reason`."""
    newest = last_before(job.schedule, end, not_before=start)
    if newest is None:
        return CaughtUp()
    match misfire:
        case Misfire.SKIP:
            return CaughtUp(skips=_skip(job, start, end, reason))
        case Misfire.ONCE:
            return CaughtUp(runs=(_occurrence(job, newest, now, new_id),), skips=_skip(job, start, newest, reason))
        case Misfire.ALL:
            first = next_after(job.schedule, start - timedelta(microseconds=1))
            assert first is not None
            return CaughtUp(
                backfill=Backfill(
                    id=new_id(),
                    job_id=job.id,
                    trigger=Trigger.SCHEDULE,
                    start=first,
                    end=newest,
                    plan_at=now,
                    created_at=now,
                )
            )


def _skip(job: Job, start: datetime, end: datetime, reason: Reason) -> tuple[Skip, ...]:
    """The slots with `start <= slot < end` as one range, if there are any."""
    count = count_between(job.schedule, start, end)
    if count == 0:
        return ()
    first = next_after(job.schedule, start - timedelta(microseconds=1))
    last = last_before(job.schedule, end, not_before=start)
    assert first is not None
    assert last is not None
    return (Skip(job_id=job.id, revision=job.revision, start=first, end=last, count=count, reason=reason),)


def _gap_skips(job: Job, until: datetime) -> tuple[Skip, ...]:
    """The slots that a clock change swallows: after the last one accounted for, or since the job was written.

    Whoever writes a job asks for a plan at once, and every firing for one later: so the two can be told apart.
    """
    since = job.updated_at if job.plan_at == job.updated_at else job.next_fire_at
    assert since is not None
    return tuple(
        Skip(job_id=job.id, revision=job.revision, start=slot, end=slot, count=1, reason=Reason.DST_GAP)
        for slot in skipped_in_gaps(job.schedule, since, until)
    )


def _occurrence(job: Job, slot: datetime, now: datetime, new_id: NewId, trigger: Trigger = Trigger.SCHEDULE) -> Run:
    # What a user asks for again is due when it is asked for: its slot tells what it is about, and nothing is late.
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
    """The next runs of a backfill; applied only if nobody moved `backfill.start` meanwhile."""

    backfill: Backfill
    runs: tuple[Run, ...]
    start: datetime | None  # the next slot; None when the backfill is done
    plan_at: datetime
    skips: tuple[Skip, ...] = ()  # of slots that it leaves out


def fill(backfill: Backfill, due: Due, *, now: datetime, new_id: NewId) -> Page:
    """Turn the oldest slots of a backfill into runs, as many as there is room for: so catching up is paced."""
    room = max(MAX_UNSTARTED - due.unstarted, 0)
    runs: list[Run] = []
    slot: datetime | None = backfill.start
    while slot is not None and slot <= backfill.end and len(runs) < room:
        runs.append(_occurrence(due.job, slot, now, new_id, backfill.trigger))
        slot = next_after(due.job.schedule, slot)
    following = slot if slot is not None and slot <= backfill.end else None
    return Page(backfill=backfill, runs=tuple(runs), start=following, plan_at=now + timedelta(seconds=1))
