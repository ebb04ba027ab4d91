"""All errors that Horae raises on purpose, as one tree; each carries its subject and a message to act on.

HoraeError
├── Invalid               a request that was understood but is wrong; nothing was changed
│   ├── InvalidSchedule   a schedule that cannot be parsed or can never fire
│   ├── UnknownTask       a task that no node ever registered
│   └── RequestChanged    an idempotency key that was used for another request
├── Malformed             a request that cannot be parsed at all
├── TooLarge              a payload above its documented limit
├── NotFound              does not exist, or belongs to another owner
├── Gone                  was kept once and is no longer; start over
├── Conflict              a valid request that does not fit the current state
│   ├── IllegalMove       the state of a run does not allow this move
│   ├── KeyTaken          an unfinished job holds the key
│   ├── InFlight          an earlier request with this idempotency key is not answered yet
│   ├── RevisionChanged   the job was changed between the read and the write
│   └── WaitRefused       a task wants to wait for a run that might never start because of that
├── NoResult              an awaited run ended without a result
│   ├── RunFailed         its retries are used up, or the error was fatal
│   ├── RunCancelled      it was cancelled
│   └── RunSkipped        it was not started in time
├── Unavailable           the store (or another backend) did not answer; try again
├── Misconfigured         a setting that cannot work
└── InternalError         a bug in Horae

Raised by users' tasks:
Fatal                     do not retry
RetryAfter                retry after a delay that the task chooses
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_FAULTS = 20  # reported for one request


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request, and its place as a JSON pointer."""

    pointer: str
    detail: str
    may_quote: bool = field(default=False, compare=False)  # the value, because a task's own code wrote the detail


class HoraeError(Exception):
    """The base of all errors that Horae raises on purpose."""


class Invalid(HoraeError):
    """A request that was understood but is wrong."""

    code = "invalid"

    def __init__(self, detail: str, *, pointer: str = "", faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail)
        self.faults = tuple(faults) or ((Fault(pointer, detail),) if pointer else ())


class InvalidSchedule(Invalid):
    """A schedule that cannot be parsed or can never fire."""

    code = "invalid_schedule"

    def __init__(self, detail: str, *, pointer: str = "/schedule") -> None:
        super().__init__(detail, pointer=pointer)


class UnknownTask(Invalid):
    """A task that no node ever registered."""

    code = "unknown_task"

    def __init__(self, task: str, hint: str = "") -> None:
        super().__init__(
            f"no worker has registered the task {task!r}{hint}; start one that does, or set allow_unknown_task",
            pointer="/task",
        )
        self.task = task


class RequestChanged(Invalid):
    """An idempotency key that was used for another request."""

    code = "idempotency_key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the idempotency key {key!r} was used for another request; repeat that one unchanged, or choose a new key"
        )
        self.key = key


class Malformed(HoraeError):
    """A request that cannot be parsed at all."""


class TooLarge(HoraeError):
    """A payload above its documented limit."""


class NotFound(HoraeError):
    """Something that does not exist, or belongs to another owner."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind, self.name = kind, name


class Gone(HoraeError):
    """Something that was kept once and is no longer; the message says what to do instead."""


class Conflict(HoraeError):
    """A valid request that does not fit the current state."""

    code = "conflict"


class IllegalMove(Conflict):
    """A move that the state of a run does not allow."""

    code = "illegal_move"

    def __init__(self, run_id: str, state: str, move: str) -> None:
        super().__init__(f"run {run_id} is {state}; the move {move} is not possible")
        self.run_id, self.state, self.move = run_id, state, move


class KeyTaken(Conflict):
    """The key belongs to another unfinished job of the same owner."""

    code = "key_taken"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"the unfinished job {job_id} already has the key {key!r}; change that one, or choose another key"
        )
        self.key, self.job_id = key, job_id


class InFlight(Conflict):
    """An earlier request with the same idempotency key is still being processed."""

    code = "in_flight"

    def __init__(self, key: str) -> None:
        super().__init__(f"the request with the idempotency key {key!r} is not answered yet; repeat it in a moment")
        self.key = key


class RevisionChanged(Conflict):
    """The job was changed between the read and the write."""

    code = "revision_changed"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was changed in between; read it again and repeat the change")
        self.job_id = job_id


class WaitRefused(Conflict):
    """A task wants to wait for a run that might never start, because the task itself is in its way."""

    code = "wait_refused"


class NoResult(HoraeError):
    """An awaited run ended without a result."""

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"{run_id} {what}")
        self.run_id = run_id


class RunFailed(NoResult):
    """An awaited run failed for good."""

    def __init__(self, run_id: str, error_type: str, error_message: str, attempts: int) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(run_id, f"failed, tried {times}: {error_type}: {error_message}")
        self.error_type, self.error_message, self.attempts = error_type, error_message, attempts


class RunCancelled(NoResult):
    """An awaited run was cancelled."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "was cancelled")


class RunSkipped(NoResult):
    """An awaited run was skipped."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(run_id, f"was skipped ({reason})")
        self.reason = reason


class Unavailable(HoraeError):
    """A backend did not answer; nothing is known to have changed."""


class Misconfigured(HoraeError):
    """A setting that cannot work; the message says what to change."""


class InternalError(HoraeError):
    """A bug in Horae."""


class Fatal(Exception):
    """Raised by a task to fail without a retry."""


class RetryAfter(Exception):
    """Raised by a task to be retried after a delay of its choice; still counts as a failed attempt."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"the task asked for a retry after {seconds:g} s")
        self.seconds = seconds
