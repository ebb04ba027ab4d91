"""The recorded history: what clients asked, what handlers did, what was broken and what was left, as lines of JSON.

Any number of files make one history; their lines may come in any order. Each line is one of the records below, told
apart by its `kind`. All times are seconds since 1970 on one clock, the harness', which never jumps (`Recorder` and
`steady_clock`); ids are those that users see (`job_…`, `run_…`). A label is the harness' own name for a job: it goes
into the parameters, and the handler writes it back with each effect, so that nothing depends on the ids.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from horae.core.errors import Invalid
from horae.core.values import FastStrEnum

EPOCH = "HORAE_RECORD_EPOCH"  # tells processes of one machine when the harness' clock began


class Action(FastStrEnum):
    """What a client can ask for."""

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


class Happening(FastStrEnum):
    """What a handler notes of itself."""

    START = "START"
    END = "END"  # it came to its end, well or not
    STOPPED = "STOPPED"  # it was told to stop, and did


class Sight(FastStrEnum):
    """What has to occur in a history for it to prove anything; most are seen in the history itself."""

    LEASE_LOST = "lease_lost"
    REFUSED_REPORT = "refused_report"  # of a worker that had lost its lease
    DUPLICATE_DELIVERY = "duplicate_delivery"
    RESCUE = "rescue"  # a run started again after its worker was gone
    CATCH_UP = "catch_up"  # a slot that ran or was skipped because nobody had fired it in time
    INFO_CALL = "info_call"  # a call whose answer was lost


class Record(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, forbid_unknown_fields=True
):
    """One line."""

    at: float  # seconds since 1970 by the harness' clock


# --- what is promised


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many handlers may be at work at once."""

    scope: str  # `queue` or `node` (as in Effect.node); ordering keys and overlaps are judged without being told
    name: str
    most: int
    since: float = 0.0  # from when on it holds, where it was not there from the beginning


class Setup(Record, frozen=True, kw_only=True, tag="setup", omit_defaults=True):
    """What the set-up promises, in seconds; one line, the first of the harness'."""

    lateness: float = 5.0  # a slot starts so late at most while nothing is broken
    lateness_p50: float | None = None  # and half of them, and 99 of 100, no later than this, if that is promised
    lateness_p99: float | None = None
    recovery: float = 30.0  # after a fault, everything is in order again
    lease: float = 15.0  # how long a worker that is gone may seem to live
    grace: float = 15.0  # how long a handler that is told to stop may take
    clock_error: float = 0.001  # between the harness' clock and the store's
    planned: Sequence[str] = ()  # names of faults that have to fire for the history to prove anything
    limits: Sequence[Limit] = ()


# --- what clients asked


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a job was asked to do, in the words of the REST API; its defaults are those of the API."""

    label: str  # the harness' own name; unique to a job, but for calls with one idempotency key or one `key`
    task: str = ""
    params: str = ""  # as sent, if that is to be compared with what the final state tells
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
        """From the body of a request."""
        retry = body.get("retry") or {}
        given = {name: body[name] for name in cls.__struct_fields__ if body.get(name) is not None}
        given |= {name: retry[name] for name in ("initial_seconds", "factor", "max_seconds") if name in retry}
        return cls(**{**given, "label": label, "params": msgspec.json.encode(body.get("params") or {}).decode()})


class Invoke(Record, frozen=True, kw_only=True, tag="invoke", omit_defaults=True):
    """A client is about to ask; exactly one Ok, Fail or Info with the same `call` follows."""

    call: str  # unique in the history
    action: Action
    owner: str = "local"
    job: str | None = None  # what it is about; of a call that creates, None
    run: str | None = None
    definition: Definition | None = None  # of `create` and `update`
    idempotency_key: str | None = None
    keep_running: bool = False  # of `delete`: what has started may go on


class Ok(Record, frozen=True, kw_only=True, tag="ok", omit_defaults=True):
    """The call was answered with success."""

    call: str
    job: str | None = None
    run: str | None = None  # of `create` too, where the job is for once
    status: str | None = None  # of the run as the answer shows it: of `cancel` and `read`
    owner: str | None = None  # whose the answer says that it is
    schedule: dict[str, Any] = {}  # of the job as the answer shows it: it has the anchor of an interval


class Fail(Record, frozen=True, kw_only=True, tag="fail", omit_defaults=True):
    """The call was refused: it is certain that nothing was done."""

    call: str
    code: int = 0  # of HTTP
    problem: str = ""


class Info(Record, frozen=True, kw_only=True, tag="info", omit_defaults=True):
    """Nobody knows whether the call was done: its answer was lost, or it was a 5xx."""

    call: str
    problem: str = ""


# --- what handlers did


class Effect(Record, frozen=True, kw_only=True, tag="effect", omit_defaults=True):
    """A handler notes its start or its end by itself, not by way of Horae."""

    event: Happening
    run: str
    job: str
    attempt: int
    fence: int
    due: float  # the due time that the handler was given
    label: str  # out of its parameters
    node: str = ""  # of the worker, where limits of nodes are judged
    pid: int = 0
    good: bool = True  # of END: whether it returns, not raises
    params: str = ""  # as given to it, if that is to be compared


# --- what lay between: only where a harness stands between worker and store


class Lease(Record, frozen=True, kw_only=True, tag="lease", omit_defaults=True):
    """A worker was given a run under a new fence."""

    run: str
    fence: int
    node: str = ""


class Report(Record, frozen=True, kw_only=True, tag="report", omit_defaults=True):
    """A worker's result under a fence reached the store, which took it or not."""

    run: str
    fence: int
    accepted: bool
    status: str = ""  # that the run has by it, if the harness knows; a result that is sent again is the same


class Beat(Record, frozen=True, kw_only=True, tag="beat", omit_defaults=True):
    """The store took a heartbeat: the worker has its lease from the moment that it was sent."""

    node: str
    sent_at: float


class Gone(Record, frozen=True, kw_only=True, tag="gone", omit_defaults=True):
    """A worker left in order or was given up: what it held is free."""

    node: str


class Died(Record, frozen=True, kw_only=True, tag="died", omit_defaults=True):
    """A process ended, and its handlers with it."""

    pid: int


class Sighting(Record, frozen=True, kw_only=True, tag="sighting", omit_defaults=True):
    """Something that has to occur was seen from outside: in a metric, a log, or by the one who caused it."""

    what: Sight
    times: int = 1


class Fault(Record, frozen=True, kw_only=True, tag="fault", omit_defaults=True):
    """Something was broken on purpose, and it is certain that it took effect."""

    fault: str  # for example `kill worker`, `postgres stop`
    target: str = ""
    until: float | None = None  # when it was healed; None where it lasts no time, as a kill


# --- what was left, read when everything had healed and was quiet


class FinalJob(Record, frozen=True, kw_only=True, tag="final_job", omit_defaults=True):
    """A recurring job as it was read at the end."""

    job: str
    owner: str
    status: str
    revision: int
    created_at: float
    label: str = ""
    schedule: dict[str, Any] = {}  # its object form, with the anchor of an interval that was asked for without one
    next_slot: float | None = None  # the first that is not accounted for yet


class FinalAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One try of a run, the successful one included."""

    number: int
    fence: int
    outcome: str  # `succeeded`, `failed`, `timeout`, `lost`, `released` or `cancelled`
    started_at: float | None = None
    ended_at: float | None = None
    error: str = ""  # its type
    node: str = ""


class FinalRun(Record, frozen=True, kw_only=True, tag="final_run", omit_defaults=True):
    """A run as it was read at the end."""

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
    reason: str | None = None  # why it was skipped
    crashes: int = 0
    started_at: float | None = None  # first
    finished_at: float | None = None
    attempts: Sequence[FinalAttempt] = ()
    resolution: str | None = None  # of a dead letter: `discarded`, or the run that replaced it
    requeue_of: str | None = None
    dead_letter: bool = False  # whether it is listed as one
    queue: str = "default"
    ordering_key: str | None = None
    gate: str | None = None  # runs that share one start one after another
    label: str = ""  # out of its parameters
    params: str = ""


class FinalSkip(Record, frozen=True, kw_only=True, tag="final_skip", omit_defaults=True):
    """A range of slots without runs, both ends included."""

    job: str
    start: float
    end: float
    count: int
    reason: str


class FinalCounts(Record, frozen=True, kw_only=True, tag="final_counts", omit_defaults=True):
    """What a node counted, for example `horae_runs_total` by status and `horae_dead_letters`, to be compared."""

    dead_letters: int | None = None
    runs: dict[str, int] = {}  # status → number of runs, of all nodes since their start


class Closed(Record, frozen=True, kw_only=True, tag="closed", omit_defaults=True):
    """The final state was read whole, at this moment."""


Line = (
    Setup | Invoke | Ok | Fail | Info | Effect | Lease | Report | Beat | Gone | Died | Sighting | Fault
    | FinalJob | FinalRun | FinalSkip | FinalCounts | Closed
)  # fmt: skip

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def steady_clock() -> Callable[[], float]:
    """The harness' clock: it began as this machine's, and no jump of that moves it, in any process that has EPOCH.

    The first who asks puts EPOCH into its environment, and with that into those of the processes that it starts.
    """
    epoch = float(os.environ.setdefault(EPOCH, repr(time.time() - time.monotonic())))
    return lambda: epoch + time.monotonic()


class Recorder:
    """Appends records to a file that many processes may share: each is a single write, so none is torn."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """`durable`: each record is on the disk before `write` returns."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._durable = durable

    def write(self, *records: Line) -> None:
        line = b"".join(_ENCODER.encode(record) + b"\n" for record in records)
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes were recorded")
        if self._durable:
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(*paths: Path) -> Iterator[Line]:
    """Every record of some files; what has no end of line yet is still being written, and left out."""
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _decoded(line, path, number)


def _decoded(line: bytes, path: Path, number: int) -> Line:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as exc:
        raise Invalid(f"{path}, line {number}, is no record of a history: {exc}") from exc
