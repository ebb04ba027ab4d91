"""Look-ups in SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core.model import Attempt, Job, JobId, Node, Run, RunId
from horae.ports.reader import Ledger
from horae.stores.sqlite.codecs import FIRST, ROWS, node_from, to_blob, to_hex, to_micros
from horae.stores.sqlite.database import STATEMENTS

MAX_DEPTH = 10_000


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
