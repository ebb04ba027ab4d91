"""Lists in SQLite: the statements whose indexes fit a filter best, each of which looks at a bounded number of rows."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from horae.core.ids import born_at
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Job, JobId, JobStatus, Run, State
from horae.ports.reader import JobFilter, Listing, RunFilter
from horae.stores.common.listing import (
    Ident,
    Micros,
    Number,
    Position,
    decode_cursor,
    due_range,
    page,
    share,
    time_of,
)
from horae.stores.sqlite.codecs import LAST, ROWS, STORED_RUN, to_blob, to_hex, to_json, to_micros
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.reads import jobs

_DUE_AT, _SEQ = map(STORED_RUN.index, ("due_at", "seq"))
_UNSTARTED = frozenset({State.SCHEDULED, State.CLAIMED})
_COMMON = _UNSTARTED | {State.SUCCEEDED}  # too many for the index by state if another filter is given
_AFTER_ALL_IDS = b"\xff" * 17
_MICROSECOND = timedelta(microseconds=1)

Parameters = dict[str, Any]
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class IndexStream:
    """A statement that finds part of a page, by its name after `list_`; one of few rows looks at all of them."""

    name: str
    own: Parameters = field(default_factory=dict)
    few: bool = False


def list_runs(
    db: sqlite3.Connection, which: RunFilter, cursor: str | None, limit: int, look: int | None
) -> Listing[Run]:
    """By due time, latest first."""
    common = {**run_parameters(which), "limit": limit + 1}
    if cursor is not None:
        due_at, seq = decode_cursor(cursor, Micros, Number)
        if due_at < common["due_at"]:
            common |= {"due_at": due_at, "seq": seq}
    found, edges = _search(db, _run_streams(which), common, look)
    cut = page(found, limit, lambda row: (row[_DUE_AT], row[_SEQ]), edges)
    return Listing(
        items=[ROWS.run(row) for row in cut.rows],
        cursor=cut.cursor,
        searched_to=None if cut.edge is None else time_of(int(cut.edge[0])),
    )


def _search(
    db: sqlite3.Connection, streams: Sequence[IndexStream], common: Parameters, look: int | None
) -> tuple[list[Row], list[Position]]:
    """What streams find, and the edges of those that ended because they had looked at their share of rows."""
    found: list[Row] = []
    edges: list[Position] = []
    for stream in streams:
        which = {**common, **stream.own, "look": share(look, len(streams), common["limit"])}
        rows = db.execute(STATEMENTS[f"list_{stream.name}"], which).fetchall()
        found += rows
        if look is not None and not stream.few and len(rows) < common["limit"]:
            edges += db.execute(STATEMENTS[f"edge_of_{stream.name}"], which).fetchall()
    return found, edges


def _run_streams(which: RunFilter) -> list[IndexStream]:
    """The statements that together find the runs of a filter, each run once."""
    states, alive_only = which.states, which.states is not None and not which.states & FINAL
    if states is not None and not states:
        return []
    if which.dead_letters:
        return [IndexStream(f"dead_letters_of_{_scope(which)}")]
    if which.stopping:
        return [IndexStream("stopping_runs", few=True)]
    if which.job_id is not None:
        return [
            IndexStream("live_runs_of_job" if alive_only else "runs_of_job"),
            IndexStream("run_of_one_shot", few=True),
        ]
    if which.owner is None:
        held = states is not None and states <= HELD
        return [IndexStream("held_runs", few=True) if held else IndexStream("runs_of_all")]
    if states is not None and not states & _COMMON:
        return [IndexStream("runs_of_state", {"state": state.value}) for state in states]
    if which.task is not None:
        return [IndexStream("runs_of_task")]
    if which.queue is not None:
        return [IndexStream("runs_of_queue")]
    if states is not None and not states & _UNSTARTED:
        return [IndexStream("runs_of_state", {"state": state.value}) for state in states]
    return [IndexStream("live_runs_of_owner" if alive_only else "runs_of_owner")]


def dead_letter_groups(db: sqlite3.Connection, which: RunFilter, look: int) -> list[Row]:
    """The latest dead letters grouped by task and error: (task, error, count, oldest, newest, example)."""
    parameters = {**run_parameters(which), "look": look}
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
        **_search_parameters(which),
        "job_id": None if which.job_id is None else to_blob(which.job_id),
        "states": None if which.states is None else to_json(sorted(which.states)),
        "node": None if which.node is None else to_blob(which.node),
        "min_lateness": None if which.min_lateness is None else which.min_lateness // _MICROSECOND,
        "start_at": start_at,
        "due_at": end_at,
        "seq": 0,  # before the first row: what is due at the end is not asked for
    }


def list_jobs(
    db: sqlite3.Connection, which: JobFilter, cursor: str | None, limit: int, look: int | None
) -> Listing[Job]:
    """By id, newest first: ids have the order of creation."""
    parameters = {**_job_parameters(which), "before": _AFTER_ALL_IDS, "limit": limit + 1}
    if cursor is not None:
        [before] = decode_cursor(cursor, Ident)
        parameters["before"] = to_blob(before)
    found, edges = _search(db, _job_streams(which), parameters, look)
    cut = page(found, limit, _hex_id, [_hex_id(edge) for edge in edges])
    job_ids = [JobId(to_hex(row[0])) for row in cut.rows]
    listed = jobs(db, job_ids)
    return Listing(
        items=[listed[job_id] for job_id in job_ids],
        cursor=cut.cursor,
        searched_to=None if cut.edge is None else born_at(str(cut.edge[0])),
    )


def _hex_id(row: Row) -> Position:
    return (to_hex(row[0]),)


def _job_streams(which: JobFilter) -> list[IndexStream]:
    """The statements that together find the jobs of a filter, without those that cannot find any."""
    if which.owner is None:
        return [IndexStream("jobs_of_all"), IndexStream("one_shots_of_all")]
    if which.key is not None:
        return [IndexStream("jobs_of_key"), IndexStream("one_shots_of_key")]
    status, last = which.status, which.last_run_states
    one_shots = {
        "live_one_shots": status in (None, JobStatus.SCHEDULED) and (last is None or bool(last - FINAL)),
        "ended_one_shots": status in (None, JobStatus.FINISHED) and (last is None or bool(last & FINAL)),
        "paused_one_shots": status is JobStatus.PAUSED,
        "cancelled_one_shots": status is JobStatus.CANCELLED,
    }
    return [IndexStream("jobs_of_owner"), *(IndexStream(name) for name, needed in one_shots.items() if needed)]


def _job_parameters(which: JobFilter) -> Parameters:
    status, last = which.status, which.last_run_states
    return {
        **asdict(which),
        **_search_parameters(which),
        "status": None if status is None else status.value,
        "last_states": None if last is None else to_json(sorted(last)),
        "now": LAST if which.now is None else to_micros(which.now),
    }


def _search_parameters(which: RunFilter | JobFilter) -> Parameters:
    """The parameters of what can be searched for in jobs and runs alike."""
    label, value = which.label or (None, None)
    return {
        "label": label,
        "label_value": value,
        "text": None if which.text is None else which.text.casefold(),
        "ascii": which.text is None or which.text.isascii(),
    }
