"""Batches of runs on their way into SQLite and out of it, each by one statement.

A statement that works on a batch is one step, during which other threads go on. Every row that Python binds or fetches
is a step of its own, with a wait for the interpreter's lock before and after it, and takes several times as long. So a
batch goes in as a JSON array, with its ids side by side as bytes, and comes out as one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from horae.core.model import JobId, NodeId, Run, RunId, State, band_of
from horae.core.values import replace
from horae.stores.common.codecs import (
    RUN_COLUMNS,
    Rows,
    decode_schedule,
    encode_error,
    encode_labels,
    encode_policy,
    encode_schedule,
)
from horae.stores.sqlite.codecs import Values, maybe_micros, maybe_time, run_values, to_blob, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS

FEW = 5  # runs that are written faster one by one: a statement for a batch has its price as well

# --- new runs


# Those that are alike together, by the name of a statement and its values; the others one by one.
NewRuns = list[tuple[str, Mapping[str, Any]] | list[Values]]


def encode(runs: Iterable[Run]) -> NewRuns:
    """Runs as they are written, in their order."""
    encoded: NewRuns = []
    kinds = [list(group) for _, group in groupby(runs, key=_kind)]
    for few, groups in groupby(kinds, key=lambda group: len(group) <= FEW):
        if few:
            encoded.append([run_values(run) for group in groups for run in group])
        else:
            encoded += [_alike(group) for group in groups]
    return encoded


def insert(db: sqlite3.Connection, encoded: NewRuns) -> int:
    """Write runs, and answer how many of them were new."""
    inserted = 0
    for each in encoded:
        if isinstance(each, list):
            inserted += db.executemany(STATEMENTS["insert_run"], each).rowcount
        else:
            name, values = each
            inserted += db.execute(STATEMENTS[name], values).rowcount
    return inserted


_of_run = attrgetter(
    *("owner", "created_by", "trigger", "gate", "state", "paused", "fence", "attempt", "crashes", "revision"),
    *("created_at", "requeue_of"),
)
_of_spec = attrgetter(
    *("task", "params_blob", "name", "key", "labels", "queue", "priority", "ordering_key", "policy", "secrets")
)


def _kind(run: Run) -> tuple[Any, ...]:
    """What runs share that are written together."""
    return _of_run(run), _of_spec(run.spec)


_WHEN = ("schedule", "slot", "due_at", "wake_at")
_when = attrgetter(*_WHEN)


def _alike(runs: Sequence[Run]) -> tuple[str, Mapping[str, Any]]:
    values = {"ids": to_blob("".join([ident for run in runs for ident in (run.id, run.job_id)])), **_shared(runs[0])}
    when = _when(runs[0])
    if all(_when(run) == when for run in runs):
        times = dict(zip(_WHEN, _times_of_new(runs[0]), strict=True))
        return "insert_runs_of_one_time", {"params": _json([run.spec.params for run in runs]), **times, **values}
    return "insert_runs", {"rows": _json([(run.spec.params, *_times_of_new(run)) for run in runs]), **values}


def _times_of_new(run: Run) -> tuple[Any, ...]:
    due_at = to_micros(run.due_at)
    return (
        None if run.schedule is None else encode_schedule(run.schedule),
        maybe_micros(run.slot),
        due_at,
        due_at if run.wake_at is run.due_at else to_micros(run.wake_at),
    )


def _shared(run: Run) -> dict[str, Any]:
    spec = run.spec
    return {
        "owner": run.owner,
        "created_by": run.created_by,
        "task": spec.task,
        "params_blob": spec.params_blob,
        "name": spec.name,
        "key": spec.key,
        "labels": encode_labels(spec.labels),
        "queue": spec.queue,
        "priority": spec.priority,
        "ordering_key": spec.ordering_key,
        "policy": encode_policy(spec.policy),
        "secrets": spec.secrets,
        "trigger": run.trigger.value,
        "gate": run.gate,
        "state": run.state.value,
        "paused": int(run.paused),
        "fence": run.fence,
        "attempt": run.attempt,
        "crashes": run.crashes,
        "revision": run.revision,
        "created_at": to_micros(run.created_at),
        "requeue_of": None if run.requeue_of is None else to_blob(run.requeue_of),
        "band": band_of(run.owner),
    }


# --- runs that wait in a lane


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run as the statement lane brings it."""

    id: str  # in capitals, as the job's: to write them small takes SQLite longer
    job_id: str | None  # None for that of a one-shot, which has the same id
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
    common: msgspec.Raw  # the other columns: equal for most runs, so they are decoded once for all of them


_NEVER = {"node", "finished_at", "result", "reason", "resolution"}  # while a run waits
COMMON = tuple(name for name in RUN_COLUMNS if name not in {*Waiting.__struct_fields__, *_NEVER})

_decode_lane: Callable[[str], list[Waiting]] = msgspec.json.Decoder(list[Waiting]).decode
_common_rows = Rows(time=to_time, ident=str.lower)


def lane(db: sqlite3.Connection, which: Mapping[str, Any]) -> list[Waiting]:
    """A page of what waits in a lane, by wake-up time."""
    [text] = db.execute(STATEMENTS["lane"], which).fetchone()
    return _decode_lane(text)


def claim(db: sqlite3.Connection, rows: Sequence[Waiting], node: NodeId) -> None:
    """Take runs for a node."""
    db.execute(STATEMENTS["claim_runs"], {"node": to_blob(node), "seqs": _json([row.seq for row in rows])})


def claimed(rows: Iterable[Waiting], node: NodeId) -> list[Run]:
    """The runs that a node took."""
    return [_run(row, _common(bytes(row.common)), State.CLAIMED, node, row.fence + 1) for row in rows]


def waiting(row: Waiting) -> Run:
    """A run as it waits."""
    like = _common(bytes(row.common))
    return _run(row, like, like.state, None, row.fence)


def _run(row: Waiting, like: Run, state: State, node: NodeId | None, fence: int) -> Run:
    due_at = to_time(row.due_at)
    ident = row.id.lower()
    return replace(
        like,
        id=RunId(ident),
        job_id=JobId(ident if row.job_id is None else row.job_id.lower()),
        spec=replace(like.spec, params=row.params, queue=row.queue),
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
    """A run that has the common columns, and of the others only what a run cannot be without."""
    columns = _BLANK | dict(zip(COMMON, msgspec.json.decode(text), strict=True))
    return _common_rows.run([columns.get(name) for name in RUN_COLUMNS])


# --- runs that move on


class FencedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run that has the fence that it was named with."""

    place: int  # among those that were named
    seq: int
    state: State


_decode_fenced: Callable[[str], list[FencedRun]] = msgspec.json.Decoder(list[FencedRun]).decode


def find(db: sqlite3.Connection, runs: Sequence[Run]) -> list[FencedRun]:
    """Those of the runs whose fences still hold, as they stand."""
    named = {"ids": to_blob("".join([run.id for run in runs])), "fences": _json([run.fence for run in runs])}
    [text] = db.execute(STATEMENTS["runs_by_fence"], named).fetchone()
    return _decode_fenced(text)


def start(db: sqlite3.Connection, runs: Mapping[int, Run]) -> None:
    """Write that attempts began, or their progress; runs by their seq."""
    rows = [
        (seq, maybe_micros(run.started_at), maybe_micros(run.first_started_at), run.attempt, run.progress)
        for seq, run in runs.items()
    ]
    db.execute(STATEMENTS["start_runs"], {"rows": _json(rows)})


_how_it_ended = attrgetter("state", "attempt", "crashes", "progress", "error", "reason")


def end(db: sqlite3.Connection, runs: Mapping[int, Run]) -> None:
    """Write how runs ended; by their seq."""
    for _, group in groupby(runs.items(), key=lambda item: _how_it_ended(item[1])):
        each = list(group)
        rows = [(seq, run.result, *_times(run)) for seq, run in each]
        db.execute(STATEMENTS["end_runs"], {"rows": _json(rows), **_end(each[0][1])})


Ends = list[Mapping[str, Any]]


def encode_ends(runs: Iterable[Run]) -> Ends:
    """How held runs ended, by their ids and fences."""
    groups = [list(group) for _, group in groupby(runs, key=_how_it_ended)]
    return [
        {
            "ids": to_blob("".join([run.id for run in group])),
            "rows": _json([(run.fence, run.result, *_times(run)) for run in group]),
            **_end(group[0]),
        }
        for group in groups
    ]


def end_held(db: sqlite3.Connection, ends: Ends) -> int:
    """Write how runs ended, and answer how many of them were held with these fences."""
    return sum(db.execute(STATEMENTS["end_held_runs"], each).rowcount for each in ends)


def _end(run: Run) -> dict[str, Any]:
    return {
        "state": run.state.value,
        "attempt": run.attempt,
        "crashes": run.crashes,
        "progress": run.progress,
        "error": encode_error(run.error),
        "reason": None if run.reason is None else run.reason.value,
    }


def _times(run: Run) -> tuple[int | None, int | None, int | None]:
    started_at = maybe_micros(run.started_at)
    first = started_at if run.first_started_at is run.started_at else maybe_micros(run.first_started_at)
    return first, started_at, maybe_micros(run.finished_at)


def give_back(db: sqlite3.Connection, runs: Mapping[int, Run]) -> None:
    """Let held runs wait again; by their seq."""
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
    db.execute(STATEMENTS["give_runs_back"], {"rows": _json(rows)})


def _json(rows: Sequence[object]) -> str:
    return msgspec.json.encode(rows).decode()
