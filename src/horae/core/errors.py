"""Everything that can go wrong by design, as one tree; each error carries its subject and a sentence to act on.

HoraeError
├── Invalid               understood but wrong; nothing was changed
│   ├── InvalidSchedule   a schedule that cannot be parsed or can never fire
│   └── UnknownTask       no node ever registered the task
├── Malformed             cannot be parsed at all
├── TooLarge              above a documented limit
├── NotFound              absent, or another owner's: the same answer
├── Conflict              true of the request, not of the state it meets
│   ├── IllegalMove       the life of a run has no such step
│   ├── KeyTaken          an unfinished job holds the key
│   └── RevisionChanged   somebody changed the job first
├── Unavailable           the store (or another backend) did not answer; try again
├── Misconfigured         a setting that cannot work
└── InternalError         a promise of our own was broken; never expected

Raised by users' tasks:
Fatal                     do not retry
RetryAfter                retry after a delay of the task's choosing
"""

from collections.abc import Sequence
from dataclasses import dataclass


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


class Malformed(HoraeError):
    """Something that cannot be parsed at all."""


class TooLarge(HoraeError):
    """A payload above its documented limit."""


class NotFound(HoraeError):
    """Absent, or another owner's."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind, self.name = kind, name


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


class RevisionChanged(Conflict):
    """Somebody changed the job between the read and the write."""

    code = "revision_changed"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was changed by somebody else; read it again and repeat the change")
        self.job_id = job_id


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
