"""Everything that can go wrong by design, as one tree; each error carries its subject and a sentence to act on.

HoraeError
├── Invalid               understood but wrong; nothing was changed
│   ├── InvalidSchedule   a schedule that cannot be parsed or can never fire
│   ├── UnknownTask       no node ever registered the task
│   └── RequestChanged    an idempotency key that was used for another request
├── Malformed             cannot be parsed at all
├── TooLarge              above a documented limit
├── NotFound              absent, or another owner's: the same answer
├── Gone                  kept once, and no longer; begin anew
├── Conflict              true of the request, not of the state it meets
│   ├── IllegalMove       the life of a run has no such step
│   ├── KeyTaken          an unfinished job holds the key
│   ├── InFlight          an earlier request with this idempotency key is not answered yet
│   └── RevisionChanged   somebody changed the job first
├── NoResult              a run that was waited for ended without a result
│   ├── RunFailed         for good: its retries are used up, or the error was fatal
│   ├── RunCancelled      somebody cancelled it
│   └── RunSkipped        it was not started in time
├── Unavailable           the store (or another backend) did not answer; try again
├── Misconfigured         a setting that cannot work
└── InternalError         a promise of our own was broken; never expected

Raised by users' tasks:
Fatal                     do not retry
RetryAfter                retry after a delay of the task's choosing
"""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_FAULTS = 20  # that are looked for in one request, and told


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: where (a JSON pointer) and what."""

    pointer: str
    detail: str


class HoraeError(Exception):
    """Base of all errors that Horae raises on purpose."""


class Invalid(HoraeError):
    """A request that is understood but wrong."""

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
            f"the idempotency key {key!r} was used for another request; repeat that one as it was, or choose a new key"
        )
        self.key = key


class Malformed(HoraeError):
    """Something that cannot be parsed at all."""


class TooLarge(HoraeError):
    """A payload above its documented limit."""


class NotFound(HoraeError):
    """Absent, or another owner's."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind, self.name = kind, name


class Gone(HoraeError):
    """What was kept once and is no longer, with what to do instead."""


class Conflict(HoraeError):
    """A request that does not fit the state it meets."""

    code = "conflict"


class IllegalMove(Conflict):
    """A step that the life of a run does not have."""

    code = "illegal_move"

    def __init__(self, run_id: str, state: str, event: str) -> None:
        super().__init__(f"run {run_id} is {state}; it cannot {event}")
        self.run_id, self.state, self.event = run_id, state, event


class KeyTaken(Conflict):
    """The key belongs to another unfinished job of the same owner."""

    code = "key_taken"

    def __init__(self, key: str, job_id: str) -> None:
        super().__init__(
            f"the unfinished job {job_id} already has the key {key!r}; change that one, or choose another key"
        )
        self.key, self.job_id = key, job_id


class InFlight(Conflict):
    """An earlier request with the same idempotency key is still being worked on."""

    code = "in_flight"

    def __init__(self, key: str) -> None:
        super().__init__(f"the request with the idempotency key {key!r} is not answered yet; repeat it in a moment")
        self.key = key


class RevisionChanged(Conflict):
    """Somebody changed the job between the read and the write."""

    code = "revision_changed"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was changed by somebody else; read it again and repeat the change")
        self.job_id = job_id


class NoResult(HoraeError):
    """A run that was waited for ended without a result."""

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"{run_id} {what}")
        self.run_id = run_id


class RunFailed(NoResult):
    """A run failed for good."""

    def __init__(self, run_id: str, error_type: str, error_message: str, attempts: int) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(run_id, f"failed, tried {times}: {error_type}: {error_message}")
        self.error_type, self.error_message, self.attempts = error_type, error_message, attempts


class RunCancelled(NoResult):
    """Somebody cancelled a run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "was cancelled")


class RunSkipped(NoResult):
    """A run was not started."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(run_id, f"was skipped ({reason})")
        self.reason = reason


class Unavailable(HoraeError):
    """A backend did not answer; nothing is known to have changed."""


class Misconfigured(HoraeError):
    """A setting that cannot work, with what to do about it."""


class InternalError(HoraeError):
    """A promise of our own was broken."""


class Fatal(Exception):
    """Raised by a task whose error no retry can mend."""


class RetryAfter(Exception):
    """Raised by a task that knows when it is worth trying again; still counts as a failed attempt."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"asked to be tried again after {seconds:g} s")
        self.seconds = seconds
