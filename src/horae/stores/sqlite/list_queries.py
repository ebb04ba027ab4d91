"""Lists in SQLite: the statement whose index fits a filter best."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Job, JobId, JobStatus, Run, State
from horae.ports.reader import JobFilter, Listing, RunFilter
from horae.stores.common.listing import Ident, Micros, Number, decode_cursor, due_range, page
from horae.stores.sqlite.codecs import LAST, ROWS, STORED_RUN, to_blob, to_hex, to_json, to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.reads import jobs

_DUE_AT, _SEQ = map(STORED_RUN.index, ("due_at", "seq"))
_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})
_COMMON = _UNSTARTED | {State.SUCCEEDED}  # too many for the index by state if another filter is given
_AFTER_ALL_IDS = b"\xff" * 17

Parameters = dict[str, Any]
Row = Sequence[Any]


def list_runs(db: sqlite3.Connection, which: RunFilter, cursor: str | None, limit: int) -> Listing[Run]:
    """By due time, latest first."""
    common = {**run_parameters(which), "limit": limit + 1}
    if cursor is not None:
        due_at, seq = decode_cursor(cursor, Micros, Number)
        # SQLite seeks by a single column, not by a pair: without this bound a late page would walk through all before.
        common |= {"due_at": due_at, "seq": seq, "end_at": min(common["end_at"], due_at + 1)}
    found = [row for name, own in _run_searches(which) for row in db.execute(STATEMENTS[name], {**common, **own})]
    rows, following = page(found, limit, lambda row: (row[_DUE_AT], row[_SEQ]))
    return Listing(items=[ROWS.run(row) for row in rows], cursor=following)


def _run_searches(which: RunFilter) -> list[tuple[str, Parameters]]:
    """The statements that together find the runs of a filter, each run once; with their own parameters."""
    states, alive_only = which.states, which.states is not None and not which.states & FINAL
    if states is not None and not states:
        return []
    if which.dead_letters:
        return [(f"list_dead_letters_of_{_scope(which)}", {})]
    if which.stopping:
        return [("list_stopping_runs", {})]
    if which.job_id is not None:
        return [("list_live_runs_of_job" if alive_only else "list_runs_of_job", {}), ("list_runs_of_one_shot", {})]
    if which.owner is None:
        return [("list_held_runs" if states is not None and states <= HELD else "list_runs_of_all", {})]
    if states is not None and not states & _COMMON:
        return [("list_runs_of_state", {"state": state.value}) for state in states]
    if which.task is not None:
        return [("list_runs_of_task", {})]
    if which.queue is not None:
        return [("list_runs_of_queue", {})]
    if states is not None and not states & _UNSTARTED:
        return [("list_runs_of_state", {"state": state.value}) for state in states]
    return [("list_live_runs_of_owner" if alive_only else "list_runs_of_owner", {})]


def dead_letter_groups(db: sqlite3.Connection, which: RunFilter, limit: int) -> list[Row]:
    """The latest dead letters grouped by task and error: (task, error, count, oldest, newest, example)."""
    parameters = {**run_parameters(which), "limit": limit}
    return db.execute(STATEMENTS[f"group_dead_letters_of_{_scope(which)}"], parameters).fetchall()


def _scope(which: RunFilter) -> str:
    if which.job_id is not None:
        return "job"
    return "all" if which.owner is None else "owner"


def run_parameters(which: RunFilter) -> Parameters:
    """The parameters of every list of runs, for its first page."""
    start_at, end_at = map(to_micros, due_range(which))
    return {
        **asdict(which),
        "job_id": None if which.job_id is None else to_blob(which.job_id),
        "states": None if which.states is None else to_json(sorted(which.states)),
        "start_at": start_at,
        "end_at": end_at,
        "due_at": LAST,
        "seq": LAST,
    }


def list_jobs(db: sqlite3.Connection, which: JobFilter, cursor: str | None, limit: int) -> Listing[Job]:
    """By id, newest first: ids have the order of creation."""
    parameters = {**_job_parameters(which), "before": _AFTER_ALL_IDS, "limit": limit + 1}
    if cursor is not None:
        [before] = decode_cursor(cursor, Ident)
        parameters["before"] = to_blob(before)
    found = db.execute(STATEMENTS[_job_statement(which)], parameters).fetchall()
    rows, following = page(found, limit, lambda row: (to_hex(row[0]),))
    job_ids = [JobId(to_hex(ident)) for (ident,) in rows]
    listed = jobs(db, job_ids)
    return Listing(items=[listed[job_id] for job_id in job_ids], cursor=following)


def _job_statement(which: JobFilter) -> str:
    if which.owner is None:
        return "list_jobs_of_all"
    return "list_jobs_of_owner" if which.key is None else "list_jobs_of_key"


def _job_parameters(which: JobFilter) -> Parameters:
    label, value = which.label or (None, None)
    status, last = which.status, which.last_run_states
    return {
        **asdict(which),
        "status": None if status is None else status.value,
        "last_states": None if last is None else to_json(sorted(last)),
        "now": LAST if which.now is None else to_micros(which.now),
        "label": label,
        "label_value": value,
        "text": None if which.text is None else which.text.casefold(),
        # Which streams of the list can have matches.
        "live": status in (None, JobStatus.SCHEDULED) and (last is None or bool(last - FINAL)),
        "ended": status in (None, JobStatus.FINISHED) and (last is None or bool(last & FINAL)),
        "paused": status is JobStatus.PAUSED,
        "cancelled": status is JobStatus.CANCELLED,
    }
