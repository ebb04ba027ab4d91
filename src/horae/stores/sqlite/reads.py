"""Look-ups and lists in SQLite: each list begins with the index that fits its filter best."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from horae.core.errors import Invalid
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Attempt, Job, JobId, JobStatus, Node, Run, RunId, State
from horae.ports.reader import JobFilter, Ledger, Listing, RunFilter
from horae.stores.common.codecs import decode_cursor, encode_cursor
from horae.stores.sqlite.codecs import FIRST, LAST, ROWS, STORED_RUN, node_from, to_blob, to_hex, to_json, to_micros
from horae.stores.sqlite.database import STATEMENTS

MAX_DEPTH = 10_000

_DUE_AT, _SEQ = map(STORED_RUN.index, ("due_at", "seq"))
_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})
_COMMON = _UNSTARTED | {State.SUCCEEDED}  # too many to begin with, where there is a better filter
_AFTER_ALL_IDS = b"\xff" * 17

Parameters = dict[str, Any]
Row = Sequence[Any]


def job(db: sqlite3.Connection, job_id: JobId, owner: str | None) -> Job | None:
    """The job; a one-shot comes with its run."""
    which = {"id": to_blob(job_id), "owner": owner}
    if (row := db.execute(STATEMENTS["job"], which).fetchone()) is not None:
        return ROWS.job(row)
    row = db.execute(STATEMENTS["one_shot"], which).fetchone()
    return None if row is None else ROWS.one_shot(row)


def jobs(db: sqlite3.Connection, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
    """As `job`, of many; those that are not there are left out."""
    found = ((job_id, job(db, job_id, None)) for job_id in job_ids)
    return {job_id: one for job_id, one in found if one is not None}


def run(db: sqlite3.Connection, run_id: RunId, owner: str | None) -> Run | None:
    """The run, alive or ended."""
    row = db.execute(STATEMENTS["run"], {"id": to_blob(run_id), "owner": owner}).fetchone()
    return None if row is None else ROWS.run(row)


def runs(db: sqlite3.Connection, run_ids: Sequence[RunId]) -> Mapping[RunId, Run]:
    """As `run`, of many; those that are not there are left out."""
    found = ((run_id, run(db, run_id, None)) for run_id in run_ids)
    return {run_id: one for run_id, one in found if one is not None}


def ended(db: sqlite3.Connection, run_ids: Sequence[RunId]) -> list[Run]:
    """Those of the runs that have ended."""
    rows = (db.execute(STATEMENTS["ended_run"], (to_blob(run_id),)).fetchone() for run_id in run_ids)
    return [ROWS.run(row) for row in rows if row is not None]


def attempts(db: sqlite3.Connection, run_id: RunId) -> list[Attempt]:
    """The attempts of a run that did not succeed, oldest first."""
    return [ROWS.attempt(row) for row in db.execute(STATEMENTS["attempts"], (to_blob(run_id),))]


def attempts_of(db: sqlite3.Connection, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
    """As `attempts`, of many runs; those without any are left out."""
    found = {run_id: attempts(db, run_id) for run_id in run_ids}
    return {run_id: tried for run_id, tried in found.items() if tried}


def job_by_key(db: sqlite3.Connection, owner: str, key: str) -> Job | None:
    """The unfinished job that holds a key."""
    holder = db.execute(STATEMENTS["key_holder"], (owner, key)).fetchone()
    return None if holder is None else job(db, JobId(to_hex(holder[0])), owner)


def ahead_of(db: sqlite3.Connection, waiting: Run, limit: int) -> list[Run]:
    """What a waiting run waits for in its gate, earliest first."""
    place = {"gate": waiting.gate, "due_at": to_micros(waiting.due_at), "id": to_blob(waiting.id), "limit": limit}
    return [ROWS.run(row) for row in db.execute(STATEMENTS["ahead_of"], place)]


def last_runs(db: sqlite3.Connection, job_ids: Sequence[JobId], now: datetime) -> Mapping[JobId, Run]:
    """For each job its latest run that is already due, if there is one."""
    found: dict[JobId, Run] = {}
    for job_id in job_ids:
        row = db.execute(STATEMENTS["last_run"], {"job_id": to_blob(job_id), "now": to_micros(now)}).fetchone()
        if row is not None:
            found[job_id] = ROWS.run(row)
    return found


def list_runs(db: sqlite3.Connection, which: RunFilter, cursor: str | None, limit: int) -> Listing[Run]:
    """By due time, latest first."""
    due_at, seq = decode_cursor(cursor, int, int) if cursor else (LAST, LAST)
    rows: list[Row] = []
    for statement, parameters in _run_queries(which):
        # SQLite seeks by a plain bound, not by a pair: without it a late page would walk through all before.
        end_at = min(parameters["end_at"], due_at + 1) if cursor else parameters["end_at"]
        position = {"end_at": end_at, "due_at": due_at, "seq": seq, "limit": limit + 1}
        rows += db.execute(STATEMENTS[statement], {**parameters, **position})
    rows.sort(key=lambda row: (row[_DUE_AT], row[_SEQ]), reverse=True)
    page = rows[:limit]
    following = encode_cursor(page[-1][_DUE_AT], page[-1][_SEQ]) if len(rows) > limit and page else None
    return Listing(items=[ROWS.run(row) for row in page], cursor=following)


def _run_queries(which: RunFilter) -> list[tuple[str, Parameters]]:
    """The statements that together list what a filter asks for; no run comes from two of them."""
    common = run_parameters(which)
    states, alive_only = which.states, which.states is not None and not which.states & FINAL
    if states is not None and not states:
        return []
    if which.dead_letters:
        return [(_letters_statement(which), common)]
    if which.stopping:
        return [("list_stopping_runs", common)]
    if which.job_id is not None:
        return [("list_live_runs_of_job" if alive_only else "list_runs_of_job", common)]
    if which.owner is None:
        return [("list_held_runs" if states is not None and states <= HELD else "list_runs_of_all", common)]
    if states is not None and not states & _COMMON:
        return [("list_runs_of_state", {**common, "state": state.value}) for state in states]
    if which.task is not None:
        return [("list_runs_of_task", common)]
    if which.queue is not None:
        return [("list_runs_of_queue", common)]
    if states is not None and not states & _UNSTARTED:
        return [("list_runs_of_state", {**common, "state": state.value}) for state in states]
    return [("list_live_runs_of_owner" if alive_only else "list_runs_of_owner", common)]


def _letters_statement(which: RunFilter) -> str:
    if which.job_id is not None:
        return "list_dead_letters_of_job"
    return "list_dead_letters_of_all" if which.owner is None else "list_dead_letters_of_owner"


def run_parameters(which: RunFilter) -> Parameters:
    """What statements about runs are given of a filter."""
    start_at = FIRST if which.start_at is None else to_micros(which.start_at)
    end_at = LAST if which.end_at is None else to_micros(which.end_at)
    if which.due is not None:
        assert which.now is not None
        since_now = to_micros(which.now) + 1
        start_at, end_at = (start_at, min(end_at, since_now)) if which.due else (max(start_at, since_now), end_at)
    return {
        "owner": which.owner,
        "job_id": None if which.job_id is None else to_blob(which.job_id),
        "states": None if which.states is None else to_json(sorted(which.states)),
        "stopping": which.stopping,
        "task": which.task,
        "queue": which.queue,
        "error_type": which.error_type,
        "start_at": start_at,
        "end_at": end_at,
    }


def list_jobs(db: sqlite3.Connection, which: JobFilter, cursor: str | None, limit: int) -> Listing[Job]:
    """Newest first: ids are made in order."""
    [before] = decode_cursor(cursor, str) if cursor else [None]
    parameters = {
        **_job_parameters(which),
        "before": _AFTER_ALL_IDS if before is None else _id_in_cursor(before),
        "limit": limit + 1,
    }
    found = db.execute(STATEMENTS[_job_statement(which)], parameters).fetchall()
    page = found[:limit]
    following = encode_cursor(to_hex(page[-1][2])) if len(found) > limit and page else None
    return Listing(items=[_listed_job(db, kind, seq) for kind, seq, _ in page], cursor=following)


def _listed_job(db: sqlite3.Connection, kind: str, seq: int) -> Job:
    if kind == "job":
        return ROWS.job(db.execute(STATEMENTS["job_by_seq"], (seq,)).fetchone())
    return ROWS.one_shot(db.execute(STATEMENTS["run_by_seq"], (seq,)).fetchone())


def _job_statement(which: JobFilter) -> str:
    if which.owner is None:
        return "list_jobs_of_all"
    return "list_jobs_of_owner" if which.key is None else "list_jobs_of_key"


def _job_parameters(which: JobFilter) -> Parameters:
    label, value = which.label or (None, None)
    last = which.last_run_states
    return {
        "owner": which.owner,
        **_streams(which),
        "status": None if which.status is None else which.status.value,
        "last_states": None if last is None else to_json(sorted(last)),
        "now": LAST if which.now is None else to_micros(which.now),
        "task": which.task,
        "name": which.name,
        "key": which.key,
        "queue": which.queue,
        "label": label,
        "label_value": value,
        "text": None if which.text is None else which.text.casefold(),
    }


def _streams(which: JobFilter) -> Parameters:
    """Which of the lists that make up the list of jobs can have something; a small one instead of a large one."""
    status, last = which.status, which.last_run_states
    return {
        "live": status in (None, JobStatus.SCHEDULED) and (last is None or bool(last - FINAL)),
        "ended": status in (None, JobStatus.FINISHED) and (last is None or bool(last & FINAL)),
        "paused": status is JobStatus.PAUSED,
        "cancelled": status is JobStatus.CANCELLED,
    }


def _id_in_cursor(text: str) -> bytes:
    """An id from a cursor, which may be anybody's invention."""
    try:
        return to_blob(text)
    except ValueError as exc:
        raise Invalid(
            "the cursor is not one that this server gave out; start again without it", pointer="/cursor"
        ) from exc


def ledger(db: sqlite3.Connection, job_id: JobId, start: datetime, end: datetime, limit: int) -> Ledger:
    """What is known of the slots of a job within a range, oldest first."""
    which = {"job_id": to_blob(job_id), "start": to_micros(start), "end": to_micros(end), "limit": limit}
    return Ledger(
        runs=[ROWS.run(row) for row in db.execute(STATEMENTS["ledger_runs"], which)],
        skips=[ROWS.skip(row) for row in db.execute(STATEMENTS["ledger_skips"], which)],
        backfills=[ROWS.backfill(row) for row in db.execute(STATEMENTS["ledger_backfills"], which)],
    )


def nodes(db: sqlite3.Connection) -> list[Node]:
    """Every node that is registered."""
    return [node_from(row) for row in db.execute(STATEMENTS["nodes_since"], (FIRST,))]


def tasks(db: sqlite3.Connection) -> Mapping[str, str]:
    """Every task that a node ever registered, with its schema."""
    return dict(db.execute(STATEMENTS["tasks"]).fetchall())


def dead_letters(db: sqlite3.Connection) -> int:
    """How many failed runs nobody has resolved."""
    return int(db.execute(STATEMENTS["count_dead_letters"], {"bound": MAX_DEPTH}).fetchone()[0])
