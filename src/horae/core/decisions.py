"""The decisions of the engine as values: what to fire, whether to start, what a result or a dead worker means.

Nothing here reads a clock, a store or a random source: `now`, ids and luck are arguments, so that every decision can be
tested, replayed and simulated.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from zlib import crc32

from horae.core.events import EventKind
from horae.core.lifecycle import FINAL, Event, advance, after
from horae.core.model import (
    Attempt,
    Backfill,
    Job,
    JobError,
    JobId,
    JobStatus,
    Misfire,
    OnFailure,
    Outcome,
    Overlap,
    Reason,
    Run,
    RunId,
    Skip,
    Spec,
    State,
    Trigger,
)
from horae.core.schedule.evaluate import (
    At,
    Schedule,
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
MAX_CRASHES = 5  # workers that may die of one run before it is failed as a poison pill
APART = timedelta(seconds=6)  # times the deaths before: how far runs are drawn apart that died together again
REFILL = 2 / 3  # a planner looks again when less than this share of the horizon is fired ahead
LONGEST_HORIZON = timedelta(hours=1)  # no planner fires further ahead than this
ZONES_MOVE = timedelta(hours=3)  # as far as a new time zone database brings a slot forward
ZONES_LOOK = ZONES_MOVE + 2 * LONGEST_HORIZON  # before a slot it is asked whether it still is one
FINISH_CHECK = timedelta(seconds=2)
_TICK = timedelta(microseconds=1)

# What every run asks for; in Python 3.11 to look it up in its enum takes as long as a call.
_START, _SUCCEED = Event.START, Event.SUCCEED

NewId = Callable[[], str]


# --- firing: from slots to runs -------------------------------------------------------------------------------------


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


# --- the life of a job ----------------------------------------------------------------------------------------------


def one_shot_due(schedule: Schedule, now: datetime) -> datetime:
    """When the single run of a one-shot schedule is due: its instant, or now."""
    return schedule.time if isinstance(schedule, At) else now


def gate_of(spec: Spec, job_id: JobId, owner: str, *, recurring: bool) -> str | None:
    """Runs with the same gate start one after another.

    An ordering key is the stronger gate: all runs of a job share it, so overlap is decided inside it.
    """
    if spec.ordering_key is not None:
        return f"key:{owner}:{spec.ordering_key}"
    if recurring and spec.policy.overlap is not Overlap.ALLOW:
        return f"job:{job_id}"
    return None


def manual_run(job: Job | Run, params: str | None, *, now: datetime, new_id: NewId) -> Run:
    """A run outside the schedule; it waits for its gate but is never skipped."""
    spec = job.spec if params is None else replace(job.spec, params=params, params_blob=None)
    job_id = job.id if isinstance(job, Job) else job.job_id
    return Run(
        id=RunId(new_id()),
        job_id=job_id,
        owner=job.owner,
        created_by=job.created_by,
        spec=replace(spec, key=None),
        trigger=Trigger.MANUAL,
        due_at=now,
        wake_at=now,
        gate=gate_of(spec, job_id, job.owner, recurring=isinstance(job, Job)),
        revision=job.revision,
        created_at=now,
    )


def requeued(run: Run, *, now: datetime, new_id: NewId) -> Run:
    """A dead letter once more, as a new run in the same place of its order."""
    return Run(
        id=RunId(new_id()),
        job_id=run.job_id,
        owner=run.owner,
        created_by=run.created_by,
        spec=replace(run.spec, key=None),
        trigger=Trigger.REQUEUE,
        # Its id is younger than those of runs that were due at the same time, as a batch is: a tick keeps its place.
        due_at=run.due_at - _TICK if run.spec.ordering_key else now,
        wake_at=now,
        gate=run.gate,
        revision=run.revision,
        created_at=now,
        requeue_of=run.id,
    )


def next_run_at(job: Job, now: datetime) -> datetime | None:
    """When the job runs next by its schedule; None while it is paused or has no further slot."""
    if job.status is not JobStatus.SCHEDULED:
        return None
    slot = next_after(job.schedule, now)
    return None if slot is None else jittered(job.schedule, job.id, slot)


# --- release: may this run start now? -------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What becomes of a run at the instant of its release."""

    START = "start"
    WAIT = "wait"  # behind another run of its gate
    OVERLAP = "overlap"
    TOO_LATE = "too_late"


class Rival(Value, frozen=True, kw_only=True):
    """A run ahead in the same gate that is not finished, or failed and blocks what comes after it."""

    job_id: JobId
    started_at: datetime | None  # since when it is going: its first start, also while it waits to be tried again
    failed: bool = False  # a dead letter with `on_failure: block`: to be waited for, but not going


def release(run: Run, rivals: Sequence[Rival], now: datetime) -> Verdict:
    """Decide at the instant of release, knowing the unfinished runs ahead in the same gate (none without a gate).

    A slot overlaps when a run of its job was already going at the slot's own time. After a delay of everything (no
    worker, a restart) late runs have only each other in front: they do not overlap, they follow one another.
    """
    first_start = run.attempt == 0
    within = run.spec.policy.start_within
    if within is not None and first_start and run.trigger is not Trigger.REQUEUE and now > run.due_at + within:
        return Verdict.TOO_LATE
    if not rivals:
        return Verdict.START
    if first_start and run.trigger is Trigger.SCHEDULE and _overlaps(run, rivals):
        return Verdict.OVERLAP
    return Verdict.WAIT


def overlap_is_open(run: Run, rivals: Sequence[Rival]) -> bool:
    """Whether a run that may only wait could still turn out to overlap, because a rival's start is not known yet."""
    if run.attempt > 0 or run.trigger is not Trigger.SCHEDULE or run.spec.policy.overlap is Overlap.ALLOW:
        return False
    return any(rival.job_id == run.job_id and rival.started_at is None and not rival.failed for rival in rivals)


def blocks_key(run: Run) -> bool:
    """Whether a run failed in a way that its ordering key waits for somebody to resolve it."""
    failed = run.state is State.FAILED and run.resolution is None
    return failed and run.spec.ordering_key is not None and run.spec.policy.on_failure is OnFailure.BLOCK


def makes_way(run: Run) -> bool:
    """Whether the runs behind this one in its gate may come next: it ended, and does not block them."""
    return run.state in FINAL and not blocks_key(run)


def _overlaps(run: Run, rivals: Sequence[Rival]) -> bool:
    same_job = [rival for rival in rivals if rival.job_id == run.job_id and not rival.failed]
    going = any(rival.started_at is not None and rival.started_at <= run.due_at for rival in same_job)
    match run.spec.policy.overlap:
        case Overlap.ALLOW:
            return False
        case Overlap.SKIP:
            return going
        case Overlap.BUFFER_ONE:
            return going and any(rival.started_at is None for rival in same_job)


# --- results --------------------------------------------------------------------------------------------------------


class Failure(Value, frozen=True, kw_only=True):
    """Why an attempt failed, and what it says about another try."""

    error: JobError
    outcome: Outcome = Outcome.FAILED
    fatal: bool = False
    retry_after: timedelta | None = None


class Settled(Value, frozen=True, kw_only=True):
    """A run after its attempt ended; written only if its fence still holds."""

    run: Run
    attempt: Attempt | None = None  # the record of the attempt, unless it succeeded or never began


def start(run: Run, now: datetime) -> Run:
    """The run as its attempt begins."""
    return replace(  # as `advance` does, without the cost of passing so much on: every run takes this way
        run,
        state=after(run, _START),
        started_at=now,
        first_started_at=run.first_started_at or now,
        attempt=run.attempt + 1,
        progress=None,
    )


def succeed(run: Run, result: str | None, now: datetime) -> Settled:
    """The attempt did its work."""
    return Settled(run=replace(run, state=after(run, _SUCCEED), finished_at=now, result=result, error=None))


def fail(run: Run, failure: Failure, now: datetime, luck: float) -> Settled:
    """The attempt failed: try again by the retry policy, or give up."""
    record = _attempt(run, failure.outcome, now, failure.error)
    retry = run.spec.policy.retry
    if failure.fatal or run.attempt > retry.max_retries:
        return Settled(run=advance(run, Event.GIVE_UP, finished_at=now, error=failure.error), attempt=record)
    delay = retry.delay_after(run.attempt, luck) if failure.retry_after is None else failure.retry_after
    again = advance(run, Event.RETRY, wake_at=now + delay, error=failure.error, node=None)
    return Settled(run=again, attempt=record)


def cancel(run: Run, now: datetime) -> Settled:
    """The run ends because somebody asked for it."""
    record = _attempt(run, Outcome.CANCELLED, now) if run.state is State.RUNNING else None
    return Settled(run=advance(run, Event.CANCEL, finished_at=now), attempt=record)


def skip(run: Run, reason: Reason, now: datetime) -> Settled:
    """The run ends without a start, and says why."""
    return Settled(run=advance(run, Event.SKIP, finished_at=now, reason=reason))


def give_back(run: Run, now: datetime) -> Settled:
    """Return a run that this node will not finish; it costs no retry and no delay."""
    return _returned(run, Outcome.RELEASED, now, crashes=run.crashes)


def lost(run: Run, now: datetime) -> Settled:
    """The node of the run died: it goes back at once, unless its workers keep dying of it.

    Those that a worker held when it died are all suspects. From the second time on they come back apart, for else
    the one that kills would take the same neighbours with it until all of them are failed.
    """
    started = run.state is State.RUNNING or run.wake_at <= now  # as far as anybody can know
    crashes = run.crashes + 1 if started else run.crashes
    if run.stop is Reason.CANCELLED:
        return cancel(replace(run, crashes=crashes), now)
    if not started:
        return _returned(run, Outcome.LOST, now, crashes=crashes)
    if crashes < MAX_CRASHES:
        return _returned(run, Outcome.LOST, now, crashes=crashes, wait=run.crashes * APART * _luck_of(run))
    error = JobError(type="crash", message=f"{crashes} workers died while they held this run; it is not tried again")
    record = _attempt(run, Outcome.LOST, now, error)
    return Settled(run=advance(run, Event.BURY, finished_at=now, error=error, crashes=crashes), attempt=record)


def _luck_of(run: Run) -> float:
    """Between 0 and 1: another for each run and each claim of it, and the same for whoever asks."""
    return crc32(f"{run.id} {run.fence}".encode()) / 2**32


def _returned(run: Run, outcome: Outcome, now: datetime, *, crashes: int, wait: timedelta = timedelta()) -> Settled:
    began = run.state is State.RUNNING
    back = advance(
        run,
        Event.GIVE_BACK,
        wake_at=max(run.wake_at, now + wait),  # never below the floor that claims scan from
        attempt=run.attempt - 1 if began else run.attempt,
        crashes=crashes,
        node=None,
    )
    return Settled(run=back, attempt=_attempt(run, outcome, now) if began else None)


def _attempt(run: Run, outcome: Outcome, now: datetime, error: JobError | None = None) -> Attempt:
    return Attempt(
        run_id=run.id,
        number=run.attempt,
        fence=run.fence,
        node=run.node,
        started_at=run.started_at,
        ended_at=now,
        outcome=outcome,
        error=error,
    )
