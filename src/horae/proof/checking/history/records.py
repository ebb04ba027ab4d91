"""The record types of a history: requests of clients, starts of handlers, injected faults and the final state.

Each record is one line of JSON with its `kind`. A history is any number of files, with lines in any order. All times
are seconds since 1970 on one clock that never jumps (`steady_clock`); ids are those that users see (`job_…`, `run_…`).
A label is the harness' own name for a job. It is part of the parameters, and the handler records it with each effect,
so that judging does not depend on ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from horae.core.values import FastStrEnum


class Action(FastStrEnum):
    """The kinds of requests."""

    CREATE = "create"
    UPDATE = "update"  # of the whole job; `definition` is what holds afterwards
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"  # of a job: cancels it and what waits
    TRIGGER = "trigger"  # `POST /v1/jobs/{id}/run`
    BACKFILL = "backfill"
    CANCEL = "cancel"  # of a run
    REQUEUE = "requeue"  # of a dead letter, also `POST /v1/runs/{id}/retry`
    DISCARD = "discard"  # of a dead letter
    READ = "read"  # of a run


class HandlerEvent(FastStrEnum):
    """What a handler records about itself."""

    START = "START"
    END = "END"  # it returned or raised
    STOPPED = "STOPPED"  # it was asked to stop, and did


class Occurrence(FastStrEnum):
    """Events that must occur in a history for it to prove anything; most are found in the history itself."""

    LEASE_LOST = "lease_lost"
    REFUSED_REPORT = "refused_report"  # a result from a worker that had lost its lease
    DUPLICATE_DELIVERY = "duplicate_delivery"
    RESCUE = "rescue"  # a run started again after its worker was gone
    CATCH_UP = "catch_up"  # a slot that was run or skipped later because it was not fired in time
    INFO_CALL = "info_call"  # a call whose answer was lost


class Record(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, forbid_unknown_fields=True
):
    """One line of a history."""

    at: float  # seconds since 1970 by the clock of the harness


# --- what is guaranteed


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many handlers may run at once."""

    scope: str  # `queue` or `node` (as in Effect.node); ordering keys and overlaps need no limit
    name: str
    most: int
    since: float = 0.0  # when it came into force


class Setup(Record, frozen=True, kw_only=True, tag="setup", omit_defaults=True):
    """The bounds that hold in this set-up, in seconds; written once, first."""

    lateness: float = 5.0  # the latest start of a slot while there is no fault
    lateness_p50: float | None = None  # bounds for the percentiles; None: none
    lateness_p99: float | None = None
    recovery: float = 30.0  # the time to recover after a fault
    lease: float = 15.0  # how long a dead worker keeps its runs
    grace: float = 15.0  # how long a handler may take to stop
    clock_error: float = 0.001  # between the harness' clock and the store's
    planned: Sequence[str] = ()  # names of faults that must occur for the history to prove anything
    limits: Sequence[Limit] = ()


# --- requests


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job as requested, with the field names and defaults of the REST API."""

    label: str  # unique to a job; calls with one idempotency key or one `key` share it
    task: str = ""
    params: str = ""  # as sent, to be compared with the final state; empty: not compared
    schedule: str | dict[str, Any] = "now"
    queue: str = "default"
    priority: int = 0
    ordering_key: str | None = None
    on_failure: str = "continue"
    max_retries: int = 3
    initial_seconds: float = 5.0  # of `retry`
    factor: float = 2.0
    max_seconds: float = 600.0
    timeout_seconds: float | None = None
    start_within_seconds: float | None = None
    overlap: str = "skip"
    misfire: str = "once"
    catchup_seconds: float = 3600.0

    @classmethod
    def of(cls, body: Mapping[str, Any], *, label: str) -> Self:
        """Take the definition from the body of a request."""
        retry = body.get("retry") or {}
        given = {name: body[name] for name in cls.__struct_fields__ if body.get(name) is not None}
        given |= {name: retry[name] for name in ("initial_seconds", "factor", "max_seconds") if name in retry}
        return cls(**{**given, "label": label, "params": msgspec.json.encode(body.get("params") or {}).decode()})


class Invoke(Record, frozen=True, kw_only=True, tag="invoke", omit_defaults=True):
    """A client sends a request; exactly one Ok, Fail or Info with the same `call` follows."""

    call: str  # unique in the history
    action: Action
    owner: str = "local"
    job: str | None = None  # the job or run it acts on; None for a create
    run: str | None = None
    definition: Definition | None = None  # of `create` and `update`
    idempotency_key: str | None = None
    keep_running: bool = False  # of `delete`: started runs may go on


class Ok(Record, frozen=True, kw_only=True, tag="ok", omit_defaults=True):
    """The request succeeded."""

    call: str
    job: str | None = None
    run: str | None = None  # also of a `create` of a one-shot
    status: str | None = None  # of the run in the answer to `cancel` and `read`
    owner: str | None = None  # the owner in the answer
    schedule: dict[str, Any] = {}  # of the job in the answer; it contains the anchor of an interval


class Fail(Record, frozen=True, kw_only=True, tag="fail", omit_defaults=True):
    """The request was rejected: it certainly had no effect."""

    call: str
    code: int = 0  # the HTTP status
    problem: str = ""


class Info(Record, frozen=True, kw_only=True, tag="info", omit_defaults=True):
    """The outcome of the request is unknown: the answer was lost, or it was a 5xx."""

    call: str
    problem: str = ""


# --- handlers


class Effect(Record, frozen=True, kw_only=True, tag="effect", omit_defaults=True):
    """The start or end of a handler, recorded by the handler itself and not through Horae."""

    event: HandlerEvent
    run: str
    job: str
    attempt: int
    fence: int
    due: float  # the due time that the handler was given
    label: str  # from its parameters
    node: str = ""  # of the worker; needed to judge limits of nodes
    pid: int = 0
    good: bool = True  # of END: it returned and did not raise
    params: str = ""  # as the handler got them; empty: not compared


# --- between workers and store: only where a harness observes their calls


class LeaseGranted(Record, frozen=True, kw_only=True, tag="lease", omit_defaults=True):
    """A worker claimed a run under a new fence."""

    run: str
    fence: int
    node: str = ""


class ResultReport(Record, frozen=True, kw_only=True, tag="report", omit_defaults=True):
    """The result of a worker reached the store, which accepted or refused it."""

    run: str
    fence: int
    accepted: bool
    status: str = ""  # of the run after this result, if known; a repeated result has the same


class HeartbeatTaken(Record, frozen=True, kw_only=True, tag="beat", omit_defaults=True):
    """The store accepted a heartbeat: the lease of the worker counts from `sent_at`."""

    node: str
    sent_at: float


class NodeGone(Record, frozen=True, kw_only=True, tag="gone", omit_defaults=True):
    """A worker left or was declared dead: its runs are free."""

    node: str


class ProcessDied(Record, frozen=True, kw_only=True, tag="died", omit_defaults=True):
    """A process ended with all its handlers."""

    pid: int


class Observation(Record, frozen=True, kw_only=True, tag="sighting", omit_defaults=True):
    """Something that must occur was observed outside the history: in a metric, in a log, or by its cause."""

    what: Occurrence
    times: int = 1


class InjectedFault(Record, frozen=True, kw_only=True, tag="fault", omit_defaults=True):
    """A fault was injected, and it certainly took effect."""

    fault: str  # for example `kill worker`, `postgres stop`
    target: str = ""
    until: float | None = None  # when it ended; None for a fault without duration, such as a kill


# --- the final state, read after all faults had ended and all work was done


class FinalJob(Record, frozen=True, kw_only=True, tag="final_job", omit_defaults=True):
    """A recurring job in the final state."""

    job: str
    owner: str
    status: str
    revision: int
    created_at: float
    label: str = ""
    schedule: dict[str, Any] = {}  # its object form; an interval always has its anchor
    next_slot: float | None = None  # the first that is not accounted for


class FinalAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One attempt of a run, successful or not."""

    number: int
    fence: int
    outcome: str  # `succeeded`, `failed`, `timeout`, `lost`, `released` or `cancelled`
    started_at: float | None = None
    ended_at: float | None = None
    error: str = ""  # the type of the error
    node: str = ""


class FinalRun(Record, frozen=True, kw_only=True, tag="final_run", omit_defaults=True):
    """A run in the final state."""

    run: str
    job: str
    owner: str
    status: str
    trigger: str
    due_at: float
    created_at: float
    fence: int
    attempt: int
    slot: float | None = None
    reason: str | None = None  # of a skipped run
    crashes: int = 0
    started_at: float | None = None  # first
    finished_at: float | None = None
    attempts: Sequence[FinalAttempt] = ()
    resolution: str | None = None  # of a dead letter: `discarded`, or the run that replaced it
    requeue_of: str | None = None
    dead_letter: bool = False  # whether it is listed as one
    queue: str = "default"
    ordering_key: str | None = None
    gate: str | None = None  # runs with the same gate run one after another
    label: str = ""  # from its parameters
    params: str = ""


class FinalSkip(Record, frozen=True, kw_only=True, tag="final_skip", omit_defaults=True):
    """A range of slots without runs, both ends included."""

    job: str
    start: float
    end: float
    count: int
    reason: str


class FinalCounts(Record, frozen=True, kw_only=True, tag="final_counts", omit_defaults=True):
    """Metrics to compare with the final state, for example `horae_runs_total` and `horae_dead_letters`."""

    dead_letters: int | None = None
    runs: dict[str, int] = {}  # status → number of runs, summed over all nodes since their start


class Closed(Record, frozen=True, kw_only=True, tag="closed", omit_defaults=True):
    """The final state was read completely at this moment."""


Line = (
    Setup | Invoke | Ok | Fail | Info | Effect | LeaseGranted | ResultReport | HeartbeatTaken | NodeGone | ProcessDied
    | Observation | InjectedFault | FinalJob | FinalRun | FinalSkip | FinalCounts | Closed
)  # fmt: skip
