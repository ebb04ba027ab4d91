"""Codecs between domain values and SQLite columns: times as microseconds, ids as 16 bytes, lists as JSON text."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from horae.core.changes import JobMoved
from horae.core.model import Attempt, Backfill, Job, Node, Run, Skip, shard_of
from horae.stores.common.codecs import (
    JOB_COLUMNS,
    RUN_COLUMNS,
    SPEC_COLUMNS,
    Rows,
    encode_error,
    encode_schedule,
    encode_tasks,
    spec_columns,
)

FIRST = -(2**63)  # before every time and every row
LAST = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

Values = tuple[Any, ...]

to_blob = bytes.fromhex  # ids: 32 digits in the domain, 16 bytes in a column
to_hex = bytes.hex


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970; exact."""
    return (moment - _EPOCH) // MICROSECOND


def maybe_micros(moment: datetime | None) -> int | None:
    """As `to_micros`; None stays None."""
    return None if moment is None else (moment - _EPOCH) // MICROSECOND


@lru_cache(4096)  # many runs are created, or due, at the same time
def to_time(micros: int) -> datetime:
    """The inverse of `to_micros`."""
    return _EPOCH + timedelta(0, 0, micros)  # by position: keywords take twice as long


def maybe_time(micros: int | None) -> datetime | None:
    """As `to_time`; None stays None."""
    return None if micros is None else to_time(micros)


def to_json(values: Iterable[object]) -> str:
    """A list for json_each."""
    return msgspec.json.encode(list(values)).decode()


# The columns of the tables, as SELECT * returns them; columns that were added later are the last.
_LATER = ("secrets", "requeue_of")
STORED_RUN = (*(name for name in RUN_COLUMNS if name not in _LATER), "parked", "seq", *_LATER)
STORED_JOB = (*(name for name in JOB_COLUMNS if name not in _LATER), "shard", "seq", "secrets")

_run_columns = itemgetter(*map(STORED_RUN.index, RUN_COLUMNS))
_job_columns = itemgetter(*map(STORED_JOB.index, JOB_COLUMNS))


class _StoredRows(Rows):
    """Builds jobs and runs from rows of SELECT *."""

    def run(self, row: Sequence[Any]) -> Run:
        return super().run(_run_columns(row))

    def job(self, row: Sequence[Any]) -> Job:
        return super().job(_job_columns(row))

    def node(self, row: Sequence[Any]) -> Node:
        names, queues = map(msgspec.json.decode, (row[2], row[4]))
        return super().node((*row[:2], names, row[3], queues, *row[5:10], row[10] * MICROSECOND))


ROWS = _StoredRows(time=to_time, ident=to_hex)

NEW_RUN_COLUMNS = (
    *("id", "job_id", "params", "schedule", "slot", "due_at", "wake_at", "owner", "created_by"),
    *(name for name in SPEC_COLUMNS if name != "params"),
    *("trigger", "gate", "state", "paused", "fence", "attempt", "crashes", "revision"),
    *("created_at", "requeue_of"),
)


def run_values(run: Run) -> Values:
    """A new run, in the order of NEW_RUN_COLUMNS."""
    task, params, *rest = spec_columns(run.spec)
    return (
        to_blob(run.id),
        to_blob(run.job_id),
        params,
        *time_values(run),
        run.owner,
        run.created_by,
        task,
        *rest,
        run.trigger.value,
        run.gate,
        run.state.value,
        int(run.paused),  # the driver searches an adapter for every other type
        run.fence,
        run.attempt,
        run.crashes,
        run.revision,
        to_micros(run.created_at),
        None if run.requeue_of is None else to_blob(run.requeue_of),
    )


def time_values(run: Run) -> Values:
    """The schedule, slot, due time and wake-up time of a new run."""
    due_at = to_micros(run.due_at)
    return (
        None if run.schedule is None else encode_schedule(run.schedule),
        maybe_micros(run.slot),
        due_at,
        due_at if run.wake_at is run.due_at else to_micros(run.wake_at),
    )


def job_values(job: Job) -> Values:
    """A job, in the order of put_jobs."""
    return (
        to_blob(job.id),
        job.owner,
        job.created_by,
        *spec_columns(job.spec),
        encode_schedule(job.schedule),
        job.status.value,
        maybe_micros(job.next_fire_at),
        maybe_micros(job.plan_at),
        job.revision,
        to_micros(job.created_at),
        to_micros(job.updated_at),
        job.shard,
    )


def moved_values(moved: JobMoved) -> Values:
    """The planning of a job, in the order of move_jobs."""
    return maybe_micros(moved.next_fire_at), maybe_micros(moved.plan_at), moved.status.value, to_blob(moved.id)


def one_shot_values(run: Run) -> Values:
    """A changed one-shot, in the order of revise_one_shot."""
    assert run.schedule is not None
    return (
        *spec_columns(run.spec),
        encode_schedule(run.schedule),
        to_micros(run.due_at),
        to_micros(run.wake_at),
        run.gate,
        run.paused,
        run.revision,
        to_blob(run.id),
    )


def attempt_values(attempt: Attempt) -> Values:
    """An attempt that ended, in the order of add_attempts."""
    return (
        to_blob(attempt.run_id),
        attempt.number,
        attempt.fence,
        None if attempt.node is None else to_blob(attempt.node),
        maybe_micros(attempt.started_at),
        to_micros(attempt.ended_at),
        attempt.outcome.value,
        encode_error(attempt.error),
    )


def skip_values(skip: Skip) -> Values:
    """A range of skipped slots, in the order of insert_skips."""
    start, end = to_micros(skip.start), to_micros(skip.end)
    return to_blob(skip.job_id), skip.revision, start, end, skip.count, skip.reason.value


def backfill_values(backfill: Backfill) -> Values:
    """A backfill, in the order of put_backfills."""
    times = map(to_micros, (backfill.start, backfill.end, backfill.plan_at, backfill.created_at))
    shard = shard_of(backfill.job_id)
    return to_blob(backfill.id), to_blob(backfill.job_id), backfill.trigger.value, *times, shard


def node_values(node: Node) -> Values:
    """A node, in the order of put_node."""
    return (
        to_blob(node.id),
        node.name,
        to_json(node.roles),
        node.version,
        to_json(node.queues),
        node.concurrency,
        to_micros(node.started_at),
        to_micros(node.beat_at),
        node.running,
        encode_tasks(node.tasks),
        node.wall_ahead // MICROSECOND,
    )
