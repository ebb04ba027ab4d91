"""Batches of runs in SQLite: inserted, read, claimed, started and ended by one statement each.

A statement on a batch takes the interpreter's lock once. Each row that Python binds or fetches takes it again, which is
several times slower. So a batch is bound as one JSON array, with its ids as one value, and read as one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from horae.core.decisions.results import Settled
from horae.core.model import JobId, NodeId, Run, RunId, State
from horae.core.values import replace
from horae.stores.common.codecs import RUN_COLUMNS, Rows, decode_schedule, encode_error
from horae.stores.sqlite.codecs import (
    NEW_RUN_COLUMNS,
    Values,
    maybe_micros,
    maybe_time,
    run_values,
    time_values,
    to_blob,
    to_json,
    to_micros,
    to_time,
)
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.lanes import FirstWakes

FEW = 5  # similar runs that are inserted faster one by one: a statement for a batch has a fixed cost

# --- new runs


class NewRuns(msgspec.Struct, frozen=True):
    """New runs as values of statements."""

    inserts: list[tuple[str, list[Any]]]  # statements, each with its rows
    wakes: list[Values]  # of wake_lanes: when the first runs of lanes wake


def encode(runs: Iterable[Run]) -> NewRuns:
    """New runs as the rows of insert statements, in their order."""
    inserts: list[tuple[str, list[Any]]] = []
    lanes = FirstWakes()
    for _, group in groupby(runs, key=_likeness):
        similar = list(group)
        name, rows = _encode(similar)
        if inserts and inserts[-1][0] == name:
            inserts[-1][1].extend(rows)
        else:
            inserts.append((name, rows))
        lanes.add(similar)
    return NewRuns(inserts, lanes.values())


def insert(db: sqlite3.Connection, encoded: NewRuns) -> int:
    """Insert runs; returns how many of them were new."""
    return sum(db.executemany(STATEMENTS[name], rows).rowcount for name, rows in encoded.inserts)


def _likeness(run: Run) -> tuple[Any, ...]:
    """What similar runs share: all but their ids, parameters and times; attrgetter would take twice as long."""
    spec = run.spec
    return (
        (run.owner, run.created_by, run.trigger, run.gate, run.state, run.paused, run.fence, run.attempt),
        (run.crashes, run.revision, run.created_at, run.requeue_of),
        (spec.task, spec.params_blob, spec.name, spec.key, spec.labels, spec.queue, spec.priority, spec.ordering_key),
        (spec.policy, spec.secrets),
    )


def _have_one_time(similar: Sequence[Run]) -> bool:
    """Whether runs have the same schedule, slot, due and wake-up time; False also for equal but separate values."""
    first = similar[0]
    schedule, slot, due_at, wake_at = first.schedule, first.slot, first.due_at, first.wake_at
    return all(
        run.due_at is due_at and run.wake_at is wake_at and run.schedule is schedule and run.slot is slot
        for run in similar
    )


def _encode(similar: Sequence[Run]) -> tuple[str, list[Any]]:
    if len(similar) <= FEW:
        return "insert_run", [run_values(run) for run in similar]
    first = dict(zip(NEW_RUN_COLUMNS, run_values(similar[0]), strict=True))
    ids = to_blob("".join([ident for run in similar for ident in (run.id, run.job_id)]))
    if _have_one_time(similar):
        return "insert_runs_of_one_time", [{**first, "ids": ids, "rows": to_json([run.spec.params for run in similar])}]
    rows = [(run.spec.params, *time_values(run)) for run in similar]
    return "insert_runs", [{**first, "ids": ids, "rows": to_json(rows)}]


# --- runs that wait in a lane


class WaitingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of the statement `lane`."""

    id: str  # in upper case, as the job's: lower case takes SQLite longer
    job_id: str | None  # None for the job of a one-shot, which has the same id
    params: str
    schedule: str | None
    slot: int | None
    due_at: int
    wake_at: int
    created_at: int
    gate: str | None
    fence: int
    queue: str
    seq: int
    common: msgspec.Raw  # the other columns: equal for most runs, so decoded once for all of them


_NEVER = {"node", "finished_at", "result", "reason", "resolution"}  # while a run waits
COMMON = tuple(name for name in RUN_COLUMNS if name not in {*WaitingRow.__struct_fields__, *_NEVER})

_decode_lane: Callable[[str], list[WaitingRow]] = msgspec.json.Decoder(list[WaitingRow]).decode
_common_rows = Rows(time=to_time, ident=str.lower)


def lane(db: sqlite3.Connection, which: Mapping[str, Any]) -> list[WaitingRow]:
    """A page of the runs that wait in a lane, by wake-up time."""
    [text] = db.execute(STATEMENTS["lane"], which).fetchone()
    return _decode_lane(text)


def lane_beyond(db: sqlite3.Connection, which: Mapping[str, Any]) -> list[WaitingRow]:
    """The same, of so many runs of any task those that the claim knows."""
    [text] = db.execute(STATEMENTS["lane_beyond"], which).fetchone()
    return _decode_lane(text)


def among(db: sqlite3.Connection, run_ids: Sequence[RunId]) -> list[WaitingRow]:
    """Those of some runs that wait and are neither parked nor paused."""
    named = {"ids": to_blob("".join(run_ids)), "places": to_json(list(range(len(run_ids))))}
    [text] = db.execute(STATEMENTS["among"], named).fetchone()
    return _decode_lane(text)


def claim(db: sqlite3.Connection, rows: Sequence[WaitingRow], node: NodeId) -> None:
    """Assign runs to a node."""
    db.execute(STATEMENTS["claim_runs"], {"node": to_blob(node), "seqs": to_json([row.seq for row in rows])})


def claimed(rows: Iterable[WaitingRow], node: NodeId) -> list[Run]:
    """The runs as a node claimed them."""
    return [_run(row, _common(bytes(row.common)), State.CLAIMED, node, row.fence + 1) for row in rows]


def task_of(row: WaitingRow) -> str:
    """The task of a row, which it does not name by itself."""
    return _common(bytes(row.common)).spec.task


def priority_of(row: WaitingRow) -> int:
    """The priority of a row."""
    return _common(bytes(row.common)).spec.priority


def waiting(row: WaitingRow) -> Run:
    """The run of a row that was not claimed."""
    common = _common(bytes(row.common))
    return _run(row, common, common.state, None, row.fence)


def _run(row: WaitingRow, common: Run, state: State, node: NodeId | None, fence: int) -> Run:
    due_at = to_time(row.due_at)
    ident = row.id.lower()
    return replace(
        common,
        id=RunId(ident),
        job_id=JobId(ident if row.job_id is None else row.job_id.lower()),
        spec=replace(common.spec, params=row.params, queue=row.queue),
        schedule=None if row.schedule is None else decode_schedule(row.schedule),
        slot=maybe_time(row.slot),
        due_at=due_at,
        wake_at=due_at if row.wake_at == row.due_at else to_time(row.wake_at),
        created_at=to_time(row.created_at),
        gate=row.gate,
        state=state,
        node=node,
        fence=fence,
    )


_BLANK = dict.fromkeys(("id", "job_id", "queue"), "") | dict.fromkeys(("due_at", "wake_at", "created_at", "fence"), 0)


@lru_cache(1024)
def _common(text: bytes) -> Run:
    """A run with the common columns; the other required ones are blank."""
    columns = _BLANK | dict(zip(COMMON, msgspec.json.decode(text), strict=True))
    return _common_rows.run([columns.get(name) for name in RUN_COLUMNS])


# --- runs that move on


class FencedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of a batch whose fence still holds."""

    place: int  # in the batch
    seq: int
    state: State


_decode_fenced: Callable[[str], list[FencedRun]] = msgspec.json.Decoder(list[FencedRun]).decode


def find(db: sqlite3.Connection, runs: Sequence[Run]) -> list[FencedRun]:
    """The runs whose fences still hold, with their states."""
    named = {"ids": to_blob("".join([run.id for run in runs])), "fences": to_json([run.fence for run in runs])}
    [text] = db.execute(STATEMENTS["runs_by_fence"], named).fetchone()
    return _decode_fenced(text)


def start(db: sqlite3.Connection, runs: Mapping[int, Run]) -> None:
    """Write the starts of attempts, or their progress; `runs` by seq."""
    rows = [
        (seq, maybe_micros(run.started_at), maybe_micros(run.first_started_at), run.attempt, run.progress)
        for seq, run in runs.items()
    ]
    db.execute(STATEMENTS["start_runs"], {"rows": to_json(rows)})


Ends = list[Mapping[str, Any]]


def encode_ends(results: Iterable[Settled]) -> Ends:
    """Ends of runs as the values of end_runs, those that ended alike together."""
    groups = groupby(results, key=_how_it_ended)
    return [_encode_ends(held, [settled.run for settled in group]) for (held, *_), group in groups]


def _how_it_ended(settled: Settled) -> tuple[Any, ...]:
    run = settled.run
    return settled.was_held, run.state, run.attempt, run.crashes, run.progress, run.error, run.reason


def _encode_ends(held: bool, runs: Sequence[Run]) -> Mapping[str, Any]:
    first = runs[0]
    return {
        "held": held,
        "ids": to_blob("".join([run.id for run in runs])),
        "rows": to_json([(run.fence, run.result, *_times(run)) for run in runs]),
        "state": first.state.value,
        "attempt": first.attempt,
        "crashes": first.crashes,
        "progress": first.progress,
        "error": encode_error(first.error),
        "reason": None if first.reason is None else first.reason.value,
    }


def end(db: sqlite3.Connection, ends: Ends) -> int:
    """Write how runs ended; returns how many of them were held, or waited, with these fences."""
    return sum(db.execute(STATEMENTS["end_runs"], each).rowcount for each in ends)


def _times(run: Run) -> tuple[int | None, int | None, int | None]:
    started_at = maybe_micros(run.started_at)
    first = started_at if run.first_started_at is run.started_at else maybe_micros(run.first_started_at)
    return first, started_at, maybe_micros(run.finished_at)


def give_back(db: sqlite3.Connection, runs: Mapping[int, Run]) -> None:
    """Return held runs to their queues, now or for a later retry; `runs` by seq."""
    rows = [
        (
            seq,
            run.state,
            run.attempt,
            run.crashes,
            run.progress,
            encode_error(run.error),
            maybe_micros(run.first_started_at),
            maybe_micros(run.started_at),
            to_micros(run.wake_at),
        )
        for seq, run in runs.items()
    ]
    db.execute(STATEMENTS["return_runs"], {"rows": to_json(rows)})
