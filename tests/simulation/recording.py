"""What was seen from outside in one simulated life: what users asked, what handlers did, what the store took."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from horae.core.model import JobId, NodeId, RunId, State


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a user; its answer follows under the same number, or never."""

    at: datetime
    call: int
    action: str
    subject: str  # a label of what is created, or the id of what the call is about


@dataclass(frozen=True, slots=True)
class Answered:
    """`ok`, `fail` (nothing was done) or `info` (nobody knows)."""

    at: datetime
    call: int
    outcome: str
    what: str = ""  # the id that was answered, or the problem
    state: str = ""  # of the run that the answer tells of


@dataclass(frozen=True, slots=True)
class Effect:
    """A handler begins (`START`), comes to its end (`END`, well or not) or is stopped (`STOPPED`)."""

    at: datetime
    event: str
    run: RunId
    job: JobId
    attempt: int
    fence: int
    due: datetime
    label: str
    host: str
    node: NodeId
    good: bool = False


@dataclass(frozen=True, slots=True)
class Leased:
    """The store gave a run to a node."""

    at: datetime
    run: RunId
    fence: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Reported:
    """A result reached the store, which took it or not."""

    at: datetime
    run: RunId
    fence: int
    state: State
    accepted: bool


@dataclass(frozen=True, slots=True)
class Beaten:
    """The store took a heartbeat that was sent at `sent_at`."""

    at: datetime
    node: NodeId
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Gone:
    """A node left in order, or was buried: its runs are free."""

    at: datetime
    node: NodeId


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was broken on purpose."""

    at: datetime
    kind: str
    target: str
    detail: str = ""


Record = Asked | Answered | Effect | Leased | Reported | Beaten | Gone | Fault


class Recording:
    """All of it, in the order in which it happened."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.records: list[Record] = []

    def asked(self, call: int, action: str, subject: str) -> None:
        self.records.append(Asked(self.now(), call, action, subject))

    def answered(self, call: int, outcome: str, what: str = "", state: str = "") -> None:
        self.records.append(Answered(self.now(), call, outcome, what, state))

    def add(self, record: Record) -> None:
        self.records.append(record)
