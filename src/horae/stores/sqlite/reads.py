"""Look-ups in SQLite."""

import heapq
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from horae.core.decisions.fairness import Lane
from horae.core.decisions.firing import MAX_UNSTARTED, Due
from horae.core.drafts import MAX_INLINE_PARAMS
from horae.core.model import Attempt, Job, JobId, Node, Run, RunId, shard_of
from horae.core.records import QueueSettings
from horae.core.tickets import Ticket
from horae.ports.reader import ErrorGroup, Kept, KeptPage, KnownId, Ledger, RunFilter
from horae.ports.store import Plannable, Waiting
from horae.stores.common.codecs import decode_error
from horae.stores.common.listing import WHOLE, Ident, Micros, Number, amount_of, decode_cursor, encode_cursor
from horae.stores.common.records import KINDS, decode_record
from horae.stores.sqlite import list_queries
from horae.stores.sqlite.codecs import FIRST, ROWS, maybe_time, to_blob, to_hex, to_json, to_micros, to_time
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.queues import MAX_DEPTH, settings


def jobs(db: sqlite3.Connection, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
    """Jobs by id; a one-shot comes with its run."""
    found: dict[JobId, Job] = {}
    for job_id in job_ids:
        which = {"id": to_blob(job_id)}
        if (row := db.execute(STATEMENTS["job"], which).fetchone()) is not None:
            found[job_id] = ROWS.job(row)
        elif (row := db.execute(STATEMENTS["one_shot"], which).fetchone()) is not None:
            found[job_id] = ROWS.one_shot(row)
    return found


def runs(db: sqlite3.Connection, run_ids: Sequence[RunId], ended: bool) -> Mapping[RunId, Run]:
    """Runs by id; with `ended` only those that have ended."""
    statement = STATEMENTS["ended_run" if ended else "run"]
    rows = (db.execute(statement, {"id": to_blob(run_id)}).fetchone() for run_id in run_ids)
    found = (ROWS.run(row) for row in rows if row is not None)
    return {run.id: run for run in found}


def ids(db: sqlite3.Connection, first: str, last: str, limit: int) -> list[KnownId]:
    """The ids of jobs and runs within a range, newest first."""
    which = {"first": to_blob(first), "last": to_blob(last), "limit": limit}
    return [
        KnownId(id=to_hex(ident), owner=owner, job=bool(job), run=bool(run))
        for ident, owner, job, run in db.execute(STATEMENTS["ids"], which)
    ]


def attempts(db: sqlite3.Connection, run_ids: Sequence[RunId]) -> Mapping[RunId, Sequence[Attempt]]:
    """The attempts of runs that did not succeed, oldest first; runs without any are left out."""
    found: dict[RunId, list[Attempt]] = {}
    for run_id in run_ids:
        if rows := db.execute(STATEMENTS["attempts"], (to_blob(run_id),)).fetchall():
            found[run_id] = [ROWS.attempt(row) for row in rows]
    return found


def records(db: sqlite3.Connection, kind: type[Any], owner: str, key: str | None) -> list[Any]:
    """Records of a kind and an owner, with this key or with any."""
    if kind is QueueSettings:
        return [each for queue, each in settings(db).items() if key in (None, queue)]
    which = {"kind": KINDS[kind], "owner": owner, "key": key}
    rows = db.execute(STATEMENTS["records"], which)
    return [decode_record(name, whose, key, value, maybe_time(at)) for name, whose, key, value, at in rows]


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


def ledger(
    db: sqlite3.Connection, job_id: JobId, start: datetime, end: datetime, limit: int, look: int | None
) -> Ledger:
    """What is known of the slots of a job within a range, oldest first."""
    which = {"job_id": to_blob(job_id), "start": to_micros(start), "end": to_micros(end), "limit": limit}
    which["look"] = WHOLE if look is None else look
    return Ledger(
        runs=[ROWS.run(row) for row in db.execute(STATEMENTS["ledger_runs"], which)],
        skips=[ROWS.skip(row) for row in db.execute(STATEMENTS["ledger_skips"], which)],
        backfills=[ROWS.backfill(row) for row in db.execute(STATEMENTS["ledger_backfills"], which)],
    )


def nodes(db: sqlite3.Connection) -> list[Node]:
    """Every node that is registered."""
    return [ROWS.node(row) for row in db.execute(STATEMENTS["nodes_since"], (FIRST,))]


def count_dead_letters(db: sqlite3.Connection) -> int:
    """How many failed runs nobody has resolved."""
    return int(db.execute(STATEMENTS["count_dead_letters"], {"bound": MAX_DEPTH}).fetchone()[0])


def dead_letter_groups(db: sqlite3.Connection, which: RunFilter) -> list[ErrorGroup]:
    """Dead letters by task and error, the most frequent first."""
    return [
        ErrorGroup(
            error=error,
            count=count,
            oldest_at=to_time(oldest),
            newest_at=to_time(newest),
            task=task,
            example=RunId(to_hex(example)),
        )
        for task, text, count, oldest, newest, example in list_queries.dead_letter_groups(db, which, MAX_DEPTH)
        if (error := decode_error(text)) is not None
    ]


def kept_by(db: sqlite3.Connection, owner: str, part: Kept, cursor: str | None, limit: int) -> KeptPage:
    """What a page of an owner's jobs or runs amounts to."""
    of_jobs = part is Kept.JOBS
    place: int | bytes = b"" if of_jobs else FIRST
    seq = 0
    if cursor is not None:
        text, seq = decode_cursor(cursor, Ident if of_jobs else Micros, Number)
        place = to_blob(text) if of_jobs else text
    which = {"owner": owner, "place": place, "seq": seq, "limit": limit, "least_blob": MAX_INLINE_PARAMS}
    rows = db.execute(STATEMENTS[f"kept_{part}"], which).fetchall()
    amount = amount_of(part, ((queue, lives, size) for queue, lives, size, *_ in rows))
    if not rows or rows[0][3] is None:
        return KeptPage(amount=amount, cursor=None)
    _, _, _, place, seq = rows[0]
    return KeptPage(amount=amount, cursor=encode_cursor(to_hex(place) if isinstance(place, bytes) else place, seq))


def plannable(db: sqlite3.Connection, shards: Sequence[int], now: datetime, limit: int) -> Plannable:
    """Jobs and backfills of some shards whose `plan_at` has come."""
    which = {"shards": to_json(shards), "now": to_micros(now), "limit": limit}
    due = [ROWS.job(row) for row in db.execute(STATEMENTS["plannable_jobs"], which)]
    backfills = [ROWS.backfill(row) for row in db.execute(STATEMENTS["plannable_backfills"], which)]
    filled = jobs(db, [backfill.job_id for backfill in backfills])
    [next_at] = db.execute(STATEMENTS["next_plan_at"], which).fetchone()
    return Plannable(
        jobs=[_due(db, each) for each in due],
        backfills=[(each, _due(db, filled[each.job_id])) for each in backfills if each.job_id in filled],
        next_at=maybe_time(next_at),
    )


def _due(db: sqlite3.Connection, job: Job) -> Due:
    counts = {"job_id": to_blob(job.id), "bound": MAX_UNSTARTED}
    unstarted, live = db.execute(STATEMENTS["count_live"], counts).fetchone()
    return Due(job=job, unstarted=unstarted, live=live)


# --- tickets


def waiting(
    db: sqlite3.Connection,
    shards: Collection[int],
    since: datetime | None,
    until: datetime,
    cursor: str | None,
    limit: int,
) -> Waiting:
    """A page of tickets; it has as many rows as it looked at, less those of other shards."""
    begin = FIRST if since is None else to_micros(since) - 1
    after, seq = (
        (begin, 2**63 - 1 if since is not None else FIRST) if cursor is None else decode_cursor(cursor, int, int)
    )
    bounds = {"until": to_micros(until), "after": after, "seq": seq, "limit": limit}
    lanes = [Lane(*row) for row in db.execute(STATEMENTS["lanes_by"], {"until": bounds["until"]})]
    streams = (db.execute(STATEMENTS["waiting_in_lane"], {**asdict(lane), **bounds}) for lane in lanes)
    rows = heapq.nsmallest(limit, (row for stream in streams for row in stream), key=lambda row: row[-2:])
    more = encode_cursor(*rows[-1][-2:]) if len(rows) == limit else None
    return Waiting(tickets=[ticket for ticket in map(_ticket, rows) if _shard(ticket) in shards], cursor=more)


def next_in_gates(
    db: sqlite3.Connection, gates: Sequence[str], shards: Collection[int], since: datetime | None, until: datetime
) -> Waiting:
    """Tickets of the first waiting run of each gate, if it wakes in time."""
    rows = (db.execute(STATEMENTS["next_in_gate"], {"gate": gate}).fetchone() for gate in gates)
    first = FIRST if since is None else to_micros(since)
    found = [_ticket(row) for row in rows if row is not None and first <= row[-2] <= to_micros(until)]
    return Waiting(tickets=[ticket for ticket in found if _shard(ticket) in shards], cursor=None)


def _ticket(row: Sequence[Any]) -> Ticket:
    ident, task, queue, priority, owner, wake_at, _ = row
    return Ticket(run_id=RunId(ident), task=task, queue=queue, priority=priority, owner=owner, wake_at=to_time(wake_at))


def _shard(ticket: Ticket) -> int:
    return shard_of(JobId(ticket.run_id))
