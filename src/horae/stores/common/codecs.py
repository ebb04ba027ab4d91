"""Codecs between domain values and columns, shared by the SQL stores."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import asdict, fields

from horae.core.decisions.retry import RetryPolicy
from horae.core.job_rules import job_of
from horae.core.model import (
    NO_LABELS,
    Attempt,
    Backfill,
    Job,
    JobError,
    JobStatus,
    Node,
    Outcome,
    Policy,
    Reason,
    Run,
    Skip,
    Spec,
    State,
    Trigger,
)
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.types import At, Schedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SPEC_COLUMNS = (
    *("task", "params", "params_blob", "name", "key", "labels", "queue", "priority", "ordering_key", "policy"),
    "secrets",
)
RUN_COLUMNS = (
    *("id", "job_id", "owner", "created_by"),
    *SPEC_COLUMNS,
    *(
        "schedule",
        "trigger",
        "slot",
        "due_at",
        "wake_at",
        "gate",
        "state",
        "paused",
        "stop",
        "node",
        "fence",
        "attempt",
    ),
    *("crashes", "revision", "progress", "error", "result", "reason", "created_at", "first_started_at", "started_at"),
    *("finished_at", "resolution", "requeue_of"),
)
JOB_COLUMNS = (
    *("id", "owner", "created_by"),
    *SPEC_COLUMNS,
    *("schedule", "status", "next_fire_at", "plan_at", "revision", "created_at", "updated_at"),
)

STATES = {state.value: state for state in State}  # calling the enum takes eight times as long
TRIGGERS = {trigger.value: trigger for trigger in Trigger}


_POLICY_FIELDS = (*fields(Policy), *fields(RetryPolicy))
_POLICY_DEFAULTS = {field.name: field.default for field in _POLICY_FIELDS}
_DURATIONS = {field.name for field in _POLICY_FIELDS if field.type in (timedelta, timedelta | None)}


@lru_cache(4096)  # most runs share a handful of policies
def encode_policy(policy: Policy) -> str:
    """A policy as flat JSON text of the fields that differ from their defaults, durations in seconds."""
    given = asdict(policy) | asdict(policy.retry)
    del given["retry"]
    changed = {name: value for name, value in given.items() if value != _POLICY_DEFAULTS[name]}
    return msgspec.json.encode({name: _in_seconds(value) for name, value in changed.items()}).decode()


@lru_cache(4096)
def decode_policy(text: str) -> Policy:
    """The inverse of `encode_policy`."""
    given = msgspec.json.decode(text, type=dict[str, Any])
    for name in _DURATIONS & given.keys():
        given[name] = None if given[name] is None else timedelta(seconds=given[name])
    given["retry"] = {name: given.pop(name) for name in RetryPolicy.__struct_fields__ if name in given}
    return msgspec.convert(given, Policy, builtin_types=(timedelta,))


def _in_seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


def encode_labels(labels: Mapping[str, str]) -> str | None:
    """Labels as JSON text; None for none."""
    return msgspec.json.encode(dict(labels)).decode() if labels else None


@lru_cache(4096)
def decode_labels(text: str | None) -> Mapping[str, str]:
    """The inverse of `encode_labels`."""
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, str])) if text else NO_LABELS


class _AtRow(msgspec.Struct, tag="at", omit_defaults=True, frozen=True):
    """The wire form of `At`: it differs from run to run, so it must be quick, and to remember it would not pay."""

    time: datetime
    timezone: str = "UTC"


_AT = msgspec.json.Decoder(_AtRow)
_AT_BEGINS = '{"type":"at",'


def encode_schedule(schedule: Schedule) -> str:
    """A schedule as the JSON text of its wire form."""
    if isinstance(schedule, At):
        return msgspec.json.encode(_AtRow(schedule.time, schedule.timezone)).decode()
    return _encode_shared(schedule)


def decode_schedule(text: str) -> Schedule:
    """The inverse of `encode_schedule`."""
    if text.startswith(_AT_BEGINS):
        row = _AT.decode(text)
        return At(time=row.time, timezone=row.timezone)
    return _decode_shared(text)


@lru_cache(4096)
def _encode_shared(schedule: Schedule) -> str:
    return msgspec.json.encode(schedule_to_wire(schedule)).decode()


@lru_cache(16_384)  # what planners read again and again
def _decode_shared(text: str) -> Schedule:
    return parse_schedule(msgspec.json.decode(text), now=_EPOCH)  # stored schedules name their anchor themselves


def encode_error(error: JobError | None) -> str | None:
    """An error as JSON text."""
    return None if error is None else msgspec.json.encode({"type": error.type, "message": error.message}).decode()


def decode_error(text: str | None) -> JobError | None:
    """The inverse of `encode_error`."""
    return None if text is None else msgspec.json.decode(text, type=JobError)


def spec_columns(spec: Spec) -> tuple[Any, ...]:
    """SPEC_COLUMNS."""
    return (
        spec.task,
        spec.params,
        spec.params_blob,
        spec.name,
        spec.key,
        encode_labels(spec.labels),
        spec.queue,
        spec.priority,
        spec.ordering_key,
        encode_policy(spec.policy),
        spec.secrets,
    )


_PLAIN_COLUMNS = tuple(name for name in RUN_COLUMNS if name not in {*SPEC_COLUMNS, "schedule", "error"})


def run_row(run: Run) -> dict[str, Any]:
    """RUN_COLUMNS by name: ids and times as they are in the domain, everything else as it is stored."""
    return {
        **{name: getattr(run, name) for name in _PLAIN_COLUMNS},
        **dict(zip(SPEC_COLUMNS, spec_columns(run.spec), strict=True)),
        "schedule": None if run.schedule is None else encode_schedule(run.schedule),
        "error": encode_error(run.error),
    }


def encode_tasks(tasks: Mapping[str, str]) -> str:
    """The tasks of a node, with their schemas, as JSON text."""
    return msgspec.json.encode(dict(tasks)).decode()


@lru_cache(256)  # every heartbeat reads every node, and the tasks of a node never change
def decode_tasks(text: str) -> Mapping[str, str]:
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, str]))


class Rows:
    """Builds domain values from rows, given how a dialect shows times and ids."""

    def __init__(self, time: Callable[[Any], datetime], ident: Callable[[Any], Any]) -> None:
        self._time = time
        self._ident = ident

    def run(self, row: Sequence[Any]) -> Run:
        """A run from RUN_COLUMNS; by position, for names would take as long as all the rest."""
        time, ident = self._time, self._ident
        maybe_time = self._maybe_time
        return Run(
            ident(row[0]),  # id
            ident(row[1]),  # job_id
            row[2],  # owner
            row[3],  # created_by
            _spec(row, 4),
            time(row[18]),  # due_at
            time(row[19]),  # wake_at
            time(row[33]),  # created_at
            None if row[15] is None else decode_schedule(row[15]),
            TRIGGERS[row[16]],
            maybe_time(row[17]),  # slot
            row[20],  # gate
            STATES[row[21]],
            bool(row[22]),  # paused
            None if row[23] is None else Reason(row[23]),  # stop
            None if row[24] is None else ident(row[24]),  # node
            row[25],  # fence
            row[26],  # attempt
            row[27],  # crashes
            row[28],  # revision
            row[29],  # progress
            None if row[30] is None else decode_error(row[30]),
            row[31],  # result
            None if row[32] is None else Reason(row[32]),  # reason
            maybe_time(row[34]),  # first_started_at
            maybe_time(row[35]),  # started_at
            maybe_time(row[36]),  # finished_at
            row[37],  # resolution
            None if row[38] is None else ident(row[38]),  # requeue_of
        )

    def job(self, row: Sequence[Any]) -> Job:
        """A job from JOB_COLUMNS."""
        return Job(
            id=self._ident(row[0]),
            owner=row[1],
            created_by=row[2],
            spec=_spec(row, 3),
            schedule=decode_schedule(row[14]),
            status=JobStatus(row[15]),
            next_fire_at=self._maybe_time(row[16]),
            plan_at=self._maybe_time(row[17]),
            revision=row[18],
            created_at=self._time(row[19]),
            updated_at=self._time(row[20]),
        )

    def one_shot(self, row: Sequence[Any]) -> Job:
        """A one-shot job from the RUN_COLUMNS of its run."""
        return job_of(self.run(row))

    def attempt(self, row: Sequence[Any]) -> Attempt:
        """An attempt from (run_id, number, fence, node, started_at, ended_at, outcome, error)."""
        return Attempt(
            run_id=self._ident(row[0]),
            number=row[1],
            fence=row[2],
            node=None if row[3] is None else self._ident(row[3]),
            started_at=self._maybe_time(row[4]),
            ended_at=self._time(row[5]),
            outcome=Outcome(row[6]),
            error=decode_error(row[7]),
        )

    def node(self, row: Sequence[Any]) -> Node:
        """A node from its fields, in their order in the model; tasks as JSON text."""
        fields = dict(zip(Node.__struct_fields__, row, strict=True))
        times = {name: self._time(fields[name]) for name in ("started_at", "beat_at")}
        names = {name: tuple(fields[name]) for name in ("roles", "queues")}
        return Node(**fields | times | names | {"id": self._ident(row[0]), "tasks": decode_tasks(fields["tasks"])})

    def skip(self, row: Sequence[Any]) -> Skip:
        """A range of skipped slots from (job_id, revision, start_at, end_at, count, reason)."""
        return Skip(
            job_id=self._ident(row[0]),
            revision=row[1],
            start=self._time(row[2]),
            end=self._time(row[3]),
            count=row[4],
            reason=Reason(row[5]),
        )

    def backfill(self, row: Sequence[Any]) -> Backfill:
        """A backfill from (id, job_id, trigger, start_at, end_at, plan_at, created_at)."""
        return Backfill(
            id=self._ident(row[0]),
            job_id=self._ident(row[1]),
            trigger=Trigger(row[2]),
            start=self._time(row[3]),
            end=self._time(row[4]),
            plan_at=self._time(row[5]),
            created_at=self._time(row[6]),
        )

    def _maybe_time(self, value: Any) -> datetime | None:
        return None if value is None else self._time(value)


def _spec(row: Sequence[Any], at: int) -> Spec:
    """A spec from SPEC_COLUMNS, which begin at a column; by position, as in `Rows.run`."""
    return Spec(
        row[at],  # task
        row[at + 1],  # params
        row[at + 2],  # params_blob
        row[at + 3],  # name
        row[at + 4],  # key
        decode_labels(row[at + 5]),
        row[at + 6],  # queue
        row[at + 7],  # priority
        row[at + 8],  # ordering_key
        decode_policy(row[at + 9]),
        row[at + 10],  # secrets
    )
