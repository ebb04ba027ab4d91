"""What the end of an attempt makes of its run: success, retry, failure, cancel, give-back, lost worker."""

from datetime import datetime, timedelta
from zlib import crc32

from horae.core.lifecycle import ENDS_OF_WAITING, Move, advance, next_state
from horae.core.model import Attempt, JobError, Outcome, Reason, Run, State
from horae.core.values import Value, replace

MAX_CRASHES = 5  # workers that may die of one run before it is failed as a poison pill
APART = timedelta(seconds=6)  # times the earlier crashes: the delay within which runs that crashed together are spread

# Every run needs these, and in Python 3.11 an enum look-up takes as long as a call.
_START, _SUCCEED = Move.START, Move.SUCCEED


class Failure(Value, frozen=True, kw_only=True):
    """Why an attempt failed, and whether and when to retry it."""

    error: JobError
    outcome: Outcome = Outcome.FAILED
    fatal: bool = False
    retry_after: timedelta | None = None


class Settled(Value, frozen=True, kw_only=True):
    """A run after its attempt ended; written only if its fence still holds."""

    run: Run
    attempt: Attempt | None = None  # the record of the attempt, unless it succeeded or never began

    @property
    def was_held(self) -> bool:
        """Whether a node held the run before; otherwise it was cancelled or skipped while it waited."""
        return self.run.node is not None or self.run.state not in ENDS_OF_WAITING

    @property
    def lasted(self) -> timedelta | None:
        """How long the attempt took that ended; None when none did."""
        began, ended = self.run.started_at, self.run.finished_at
        if self.attempt is not None:
            began, ended = self.attempt.started_at, self.attempt.ended_at
        elif self.run.state is not State.SUCCEEDED:
            return None
        return None if began is None or ended is None else ended - began

    @property
    def left_at(self) -> datetime:
        """When the run left its node; for one that never started, when it wakes again."""
        ended_at = self.run.finished_at
        return ended_at or (self.run.wake_at if self.attempt is None else self.attempt.ended_at)


def start(run: Run, now: datetime) -> Run:
    """The run as its attempt begins."""
    return replace(  # like `advance`, but faster, because every run takes this path
        run,
        state=next_state(run, _START),
        started_at=now,
        first_started_at=run.first_started_at or now,
        attempt=run.attempt + 1,
        progress=None,
    )


def succeed(run: Run, result: str | None, now: datetime) -> Settled:
    """The attempt succeeded."""
    return Settled(run=replace(run, state=next_state(run, _SUCCEED), finished_at=now, result=result, error=None))


def fail(run: Run, failure: Failure, now: datetime, random_factor: float) -> Settled:
    """The attempt failed: try again by the retry policy, or give up."""
    record = _attempt(run, failure.outcome, now, failure.error)
    retry = run.spec.policy.retry
    if failure.fatal or run.attempt > retry.max_retries:
        return Settled(run=advance(run, Move.GIVE_UP, finished_at=now, error=failure.error), attempt=record)
    delay = retry.delay_after(run.attempt, random_factor) if failure.retry_after is None else failure.retry_after
    again = advance(run, Move.RETRY, wake_at=now + delay, error=failure.error, node=None)
    return Settled(run=again, attempt=record)


def cancel(run: Run, now: datetime) -> Settled:
    """The run ends because of a cancel."""
    record = _attempt(run, Outcome.CANCELLED, now) if run.state is State.RUNNING else None
    return Settled(run=advance(run, Move.CANCEL, finished_at=now), attempt=record)


def skip(run: Run, reason: Reason, now: datetime) -> Settled:
    """The run ends without a start, for `reason`."""
    return Settled(run=advance(run, Move.SKIP, finished_at=now, reason=reason))


def give_back(run: Run, now: datetime) -> Settled:
    """Return a run that this node will not finish; it costs no retry and no delay."""
    return _returned(run, Outcome.RELEASED, now, crashes=run.crashes)


def lost(run: Run, now: datetime) -> Settled:
    """The node of the run died: the run is retried at once, unless it has crashed its workers too often.

    Every run that a worker held when it died may be the cause. From the second crash on they are retried at different
    times, because otherwise the run at fault would crash the same neighbours again until all of them fail.
    """
    started = run.state is State.RUNNING or run.wake_at <= now  # as far as the store can know
    crashes = run.crashes + 1 if started else run.crashes
    if run.stop is Reason.CANCELLED:
        return cancel(replace(run, crashes=crashes), now)
    if not started:
        return _returned(run, Outcome.LOST, now, crashes=crashes)
    if crashes < MAX_CRASHES:
        return _returned(run, Outcome.LOST, now, crashes=crashes, wait=run.crashes * APART * _random_factor_of(run))
    error = JobError(type="crash", message=f"{crashes} workers died while they held this run; it is not tried again")
    record = _attempt(run, Outcome.LOST, now, error)
    return Settled(run=advance(run, Move.POISON, finished_at=now, error=error, crashes=crashes), attempt=record)


def _random_factor_of(run: Run) -> float:
    """A number from 0 to 1 that differs for each run and claim, and is the same on every node."""
    return crc32(f"{run.id} {run.fence}".encode()) / 2**32


def _returned(run: Run, outcome: Outcome, now: datetime, *, crashes: int, wait: timedelta = timedelta()) -> Settled:
    began = run.state is State.RUNNING
    back = advance(
        run,
        Move.GIVE_BACK,
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
