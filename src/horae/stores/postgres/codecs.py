"""Codecs between domain values and the columns of PostgreSQL; batches are one array per column."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import astuple

from horae.core.decisions.results import Settled
from horae.core.model import NO_LABELS, Attempt, Backfill, Job, JobId, Node, NodeId, Reason, Run, Spec, shard_of
from horae.core.values import replace
from horae.stores.common.codecs import (
    SPEC_COLUMNS,
    STATES,
    TRIGGERS,
    Rows,
    decode_error,
    decode_labels,
    decode_policy,
    decode_schedule,
    encode_error,
    encode_schedule,
    encode_tasks,
    spec_columns,
)

T = TypeVar("T")

Places = dict[tuple[str, str, str, int], tuple[int, int]]  # owner, task, queue, priority → lane, shelf

LOWEST_ID = "0" * 32
BEGINNING = datetime(1, 1, 1, tzinfo=UTC)  # of all time
HIGHEST_ID = "f" * 32
FIRST_DAY, SECOND_DAY = date(1, 1, 1), date(1, 1, 2)


ROWS = Rows(time=lambda time: time, ident=lambda ident: ident)  # connections have codecs for both, see `types`


def columns(encode: Callable[[T], tuple[Any, ...]], items: Iterable[T]) -> list[tuple[Any, ...]]:
    """The items, of which there is at least one, as one sequence per column."""
    return list(zip(*map(encode, items), strict=True))


NEW_RUN_COLUMNS = (
    *("id", "job_id", "owner", "created_by"),
    *SPEC_COLUMNS,
    *("schedule", "trigger", "slot", "due_at", "wake_at", "gate", "paused", "revision", "created_at", "requeue_of"),
    *("lane", "shelf"),
)

# Columns that are attributes, by the statement or type that they are of.
skip = attrgetter("job_id", "revision", "start", "end", "count", "reason")  # insert_skips
_NEW_RUN = attrgetter(*NEW_RUN_COLUMNS[NEW_RUN_COLUMNS.index("trigger") : NEW_RUN_COLUMNS.index("lane")])
_ONE_SHOT = attrgetter("due_at", "wake_at", "gate", "paused", "revision")  # revise_one_shot
_JOB = attrgetter("status", "next_fire_at", "plan_at", "revision", "created_at", "updated_at", "shard")  # put_jobs
_BACKFILL = attrgetter("id", "job_id", "trigger", "start", "end", "plan_at", "created_at")  # put_backfills
_RETURNED = attrgetter("id", "fence", "state", "wake_at", "attempt", "crashes", "progress")  # return_runs
_ATTEMPT = attrgetter("run_id", "number", "fence", "node", "started_at", "ended_at", "outcome")  # add_attempts


def new_run(run: Run, places: Places) -> tuple[Any, ...]:
    """NEW_RUN_COLUMNS."""
    spec = run.spec
    return (
        *(run.id, run.job_id, run.owner, run.created_by),
        *spec_columns(spec),
        None if run.schedule is None else encode_schedule(run.schedule),
        *_NEW_RUN(run),
        *places[run.owner, spec.task, spec.queue, spec.priority],
    )


def new_runs(runs: Iterable[Run], places: Places) -> list[tuple[Any, ...]]:
    """Runs as `new_runs` of PostgreSQL: what neighbours share is sent once."""
    return [_alike(list(alike), places) for _, alike in groupby(runs, key=_likeness)]


_PAUSED, _WAKE_AT, _LANE = (NEW_RUN_COLUMNS.index(name) - 2 for name in ("paused", "wake_at", "lane"))
_DUE_ATS, _WAKE_ATS, _PUNCTUAL = -4, -3, -1


def lane_wakes(batches: Iterable[tuple[Any, ...]]) -> tuple[list[int], list[datetime]]:
    """The lanes of `new_runs`, and when the first of their runs wakes."""
    first: dict[int, datetime] = {}
    for batch in batches:
        if not batch[_PAUSED]:
            wake_ats = batch[_DUE_ATS] if batch[_PUNCTUAL] else batch[_WAKE_ATS]
            wake_at = batch[_WAKE_AT] if wake_ats is None else min(wake_ats)
            lane = batch[_LANE]
            first[lane] = min(first.get(lane, wake_at), wake_at)
    return list(first), list(first.values())


def _likeness(run: Run) -> tuple[Any, ...]:
    """What runs must share to be alike; every run passes here, and attrgetter would take twice as long."""
    spec = run.spec
    return (
        (run.owner, run.created_by, run.trigger, run.paused, run.revision, run.created_at, run.requeue_of),
        (spec.task, spec.params_blob, spec.name, spec.key, spec.labels, spec.queue, spec.priority, spec.ordering_key),
        (spec.policy, spec.secrets, run.schedule is None, run.slot is None, run.gate is None),
    )


def _alike(runs: Sequence[Run], places: Places) -> tuple[Any, ...]:
    ids: list[str] = [run.id for run in runs]
    job_ids: list[str] = [run.job_id for run in runs]
    schedules = _differing([run.schedule for run in runs])
    slots = [run.slot for run in runs]
    due_ats = [run.due_at for run in runs]
    wake_ats = [run.wake_at for run in runs]
    punctual = wake_ats == due_ats and (slots[0] is None or slots == due_ats)
    return (
        *new_run(runs[0], places)[2:],
        ids,
        None if job_ids == ids else job_ids,
        _differing([run.spec.params for run in runs]),
        None if schedules is None else [encode_schedule(schedule) for schedule in schedules if schedule is not None],
        None if punctual else _differing(slots),
        _differing(due_ats),
        None if punctual else _differing(wake_ats),
        _differing([run.gate for run in runs]),
        punctual,
    )


def _differing(values: list[T]) -> list[T] | None:
    """The values, or None when they are all the same."""
    first = values[0]
    return None if values[-1] is first and values.count(first) == len(values) else values


def job(item: Job) -> tuple[Any, ...]:
    """The columns of `put_jobs`."""
    return (
        *(item.id, item.owner, item.created_by),
        *spec_columns(item.spec),
        encode_schedule(item.schedule),
        *_JOB(item),
    )


def one_shot(run: Run, places: Places) -> tuple[Any, ...]:
    """The parameters of `revise_one_shot`."""
    spec = run.spec
    return (
        run.id,
        *spec_columns(spec),
        None if run.schedule is None else encode_schedule(run.schedule),
        *_ONE_SHOT(run),
        *places[run.owner, spec.task, spec.queue, spec.priority],
    )


def backfill(item: Backfill) -> tuple[Any, ...]:
    """The columns of `put_backfills`."""
    return *_BACKFILL(item), shard_of(item.job_id)


_OFFERED = 33  # columns of a run in `claim`


# fmt: off
def offered_run(row: Sequence[Any], node: NodeId | None) -> Run:
    """A run from the first columns of `claim`; `node` if that holds it now.

    Every run passes here: hence by position, and without the calls by which `Rows` serves any dialect.
    """
    (
        ident, job_id, owner, created_by, task, params, params_blob, name, key, labels, queue, priority, ordering_key,
        policy, secrets, schedule, trigger, slot, due_at, wake_at, gate, state, stop, fence, attempt, crashes, revision,
        progress, error, created_at, first_started_at, started_at, requeue_of,
    ) = row[:_OFFERED]  # a tuple is taken apart faster than a row
    spec = Spec(
        task, params, params_blob, name, key, decode_labels(labels) if labels else NO_LABELS, queue, priority,
        ordering_key, decode_policy(policy), secrets,
    )
    return Run(
        ident, job_id or ident, owner, created_by, spec, due_at, wake_at, created_at,
        decode_schedule(schedule) if schedule else None, TRIGGERS[trigger], slot, gate, STATES[state],
        False,  # paused: such runs are not offered
        Reason(stop) if stop else None, node, fence, attempt, crashes, revision, progress,
        decode_error(error) if error else None,
        None, None,  # result, reason
        first_started_at, started_at,
        None, None,  # finished_at, resolution
        requeue_of,
    )
# fmt: on


def started(run: Run) -> tuple[Any, ...]:
    """The columns of `start_runs`."""
    return run.id, run.fence, run.attempt, run.progress, run.started_at, run.first_started_at


def run_ends(results: Iterable[Settled]) -> list[tuple[Any, ...]]:
    """Results as `run_ends` of PostgreSQL: what neighbours share is sent once."""
    return [_ended_alike(list(alike)) for _, alike in groupby(results, key=_ending)]


def _ending(result: Settled) -> tuple[Any, ...]:
    run = result.run
    return run.state, run.fence, run.attempt, run.crashes, run.progress, run.error, run.reason


def _ended_alike(alike: Sequence[Settled]) -> tuple[Any, ...]:
    *model, error, reason = _ending(alike[0])
    runs = [result.run for result in alike]
    results = [run.result for run in runs]
    first_started_ats = [run.first_started_at for run in runs]
    started_ats = [run.started_at for run in runs]
    return (
        *model,
        encode_error(error),
        reason,
        [run.id for run in runs],
        None if results.count(None) == len(results) else results,
        None if first_started_ats == started_ats else first_started_ats,
        started_ats,
        [run.finished_at for run in runs],
    )


def returned(item: Settled) -> tuple[Any, ...]:
    """The columns of `return_runs`."""
    run = item.run
    return *_RETURNED(run), encode_error(run.error), run.first_started_at, run.started_at


def attempt(item: Attempt) -> tuple[Any, ...]:
    """The columns of `add_attempts`."""
    return *_ATTEMPT(item), encode_error(item.error)


def block(run: Run) -> tuple[Any, ...]:
    """The columns of `insert_blocks`, of a failed run that blocks its gate."""
    assert run.finished_at is not None
    return run.gate, run.due_at, run.id, run.job_id, day_of(run.finished_at)


def node_columns(node: Node) -> tuple[Any, ...]:
    """The columns of `nodes`."""
    return astuple(replace(node, tasks=encode_tasks(node.tasks)))


def day_of(moment: datetime) -> date:
    """The day in UTC, by which the history is kept."""
    return moment.astimezone(UTC).date()


def birthday(ident: JobId | str) -> date | None:
    """The day of a UUIDv7, `date.max` for a time that no calendar has; None for an id of another kind."""
    if ident[12] != "7":
        return None
    try:
        return datetime.fromtimestamp(int(ident[:12], 16) / 1000, UTC).date()
    except (ValueError, OverflowError):
        return date.max


def first_day(ids: Sequence[str]) -> date:
    """The first day on which runs may have ended whose ids, or those of their jobs, are these."""
    born = min((birthday(one) or FIRST_DAY for one in ids), default=FIRST_DAY)
    return max(born, SECOND_DAY) - timedelta(days=1)  # a clock that is behind may end a run before it was born
