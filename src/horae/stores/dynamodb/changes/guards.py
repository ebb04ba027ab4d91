"""The rows that changes name in DynamoDB: read before, checked by the core, and made conditions of the transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from horae.core.changes import (
    Absent,
    BackfillUnchanged,
    Change,
    Found,
    Guard,
    JobMoved,
    JobNotCancelled,
    JobUnchanged,
    KeyFree,
    LetterOpen,
    LetterResolved,
    NodeUnchanged,
    OneShotRevised,
    Parked,
    QueueUnchanged,
    RequestNew,
    RunLive,
    RunRestored,
    RunUnchanged,
    StopRequested,
)
from horae.core.job_rules import one_shot_status
from horae.core.lifecycle import FINAL
from horae.core.model import Backfill, Job, JobId, JobStatus, Node, NodeId, Run, State
from horae.core.records import IdempotencyRecord, KeyHolder
from horae.stores.common.records import encode_record
from horae.stores.dynamodb.changes.actions import Actions
from horae.stores.dynamodb.database import Database
from horae.stores.dynamodb.items import Item, job_of_item, run_of, text
from horae.stores.dynamodb.lines import settings_key, settings_of
from horae.stores.dynamodb.small_items import backfill_key, backfill_of, node_key, node_of, record_key, record_of

_LIVE = [text(state.value) for state in sorted(set(State) - FINAL)]
_JOB_GUARD = ("r", "s", "nf")
_RUN_GUARD = ("f", "s", "r", "st")


def job_key(job_id: str) -> Item:
    """The key of the definition of a job."""
    return {"job": text(job_id), "sk": text("job")}


def run_key(run_id: str) -> Item:
    """The key of a run."""
    return {"id": text(run_id)}


def place_of_record(record: KeyHolder | IdempotencyRecord) -> Item:
    """The key of a record."""
    row = encode_record(record)
    return record_key(row.kind, row.owner, row.key)


@dataclass(slots=True)
class NamedRows:
    """NamedRows that a change names, as they were read."""

    jobs: dict[str, Item] = field(default_factory=dict)
    runs: dict[str, Item] = field(default_factory=dict)
    fills: dict[str, Item] = field(default_factory=dict)
    meta: dict[tuple[str, str], Item] = field(default_factory=dict)

    def small(self, key: Item) -> Item | None:
        """A row of `meta`."""
        return self.meta.get(_place(key))


def _place(key: Item) -> tuple[str, str]:
    return key["pk"]["S"], key["sk"]["S"]


@dataclass(slots=True)
class Wanted:
    """The keys of rows to read."""

    jobs: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    fills: dict[str, Item] = field(default_factory=dict)
    meta: dict[tuple[str, str], Item] = field(default_factory=dict)

    @classmethod
    def by(cls, change: Change, *, whole: bool) -> "Wanted":
        """What a change needs to be checked and written; the `whole` of it also tells which new runs are there."""
        wanted = cls()
        for guard in change.guards:
            wanted._add_guard(guard, change)
        for item in (*change.deletes, *change.puts):
            wanted._add_write(item)
        if whole:
            wanted.runs |= {put.id for put in change.puts if isinstance(put, Run)}
        return wanted

    def _add_guard(self, guard: Guard, change: Change) -> None:
        match guard:
            case JobUnchanged():
                self.jobs.add(guard.id)
            case JobNotCancelled() | Absent():
                self.jobs.add(guard.id)
                self.runs.add(guard.id)
            case RunUnchanged() | RunLive() | LetterOpen():
                self.runs.add(guard.id)
            case BackfillUnchanged():
                for item in (*change.deletes, *change.puts):
                    if isinstance(item, Backfill) and item.id == guard.id:
                        self.fills[item.id] = backfill_key(item)
            case KeyFree(record) | RequestNew(record):
                self.add_small(place_of_record(record))
            case QueueUnchanged(settings):
                self.add_small(settings_key(settings.queue))
            case NodeUnchanged():
                self.add_small(node_key(guard.id))

    def _add_write(self, item: object) -> None:
        match item:
            case Job() | JobMoved():
                self.jobs.add(item.id)
            case Run():
                if item.id != str(item.job_id):
                    self.jobs.add(item.job_id)
            case OneShotRevised(run) | RunRestored(run):
                self.runs.add(run.id)
            case StopRequested() | Parked():
                self.runs.add(item.run_id)
            case LetterResolved(letter):
                self.runs.add(letter.id)
            case KeyHolder():
                self.add_small(place_of_record(item))
            case Node():
                self.add_small(node_key(item.id))

    def add_small(self, key: Item) -> None:
        """Want a row of `meta`."""
        self.meta[_place(key)] = key


async def read_rows(db: Database, wanted: Sequence[Wanted]) -> NamedRows:
    """Read everything that is wanted, each row once."""
    jobs = {ident: job_key(ident) for each in wanted for ident in each.jobs}
    fills = {ident: key for each in wanted for ident, key in each.fills.items()}
    runs = {ident: run_key(ident) for each in wanted for ident in each.runs}
    meta = {place: key for each in wanted for place, key in each.meta.items()}
    found_jobs, found_runs, found_meta = await asyncio.gather(
        db.batch_get(db.names.jobs, [*jobs.values(), *fills.values()]),
        db.batch_get(db.names.runs, list(runs.values())),
        db.batch_get(db.names.meta, list(meta.values())),
    )
    rows = NamedRows(
        jobs={item["job"]["S"]: item for item in found_jobs if item["sk"]["S"] == "job"},
        runs={item["id"]["S"]: item for item in found_runs},
        fills={item["sk"]["S"][5:]: item for item in found_jobs if item["sk"]["S"] != "job"},
        meta={_place(item): item for item in found_meta},
    )
    holders = {
        item["v"]["S"]
        for item in found_meta
        if item["pk"]["S"].startswith("rec#key#") and item["v"]["S"] not in rows.runs
    }
    for item in await db.batch_get(db.names.runs, [run_key(ident) for ident in sorted(holders)]):
        rows.runs[item["id"]["S"]] = item
    return rows


def found_of(change: Change, rows: NamedRows) -> Found:
    """What the guards of a change are checked against."""
    found = Found()
    for guard in change.guards:
        match guard:
            case JobUnchanged() | Absent():
                if (item := rows.jobs.get(guard.id)) is not None:
                    found.jobs[JobId(guard.id)] = JobUnchanged.of(job_of_item(item))
                _find_run(found, guard.id, rows)
            case JobNotCancelled():
                if _is_cancelled(guard.id, rows):
                    found.cancelled.add(guard.id)
            case RunUnchanged() | RunLive() | LetterOpen():
                _find_run(found, guard.id, rows)
            case BackfillUnchanged():
                if (item := rows.fills.get(guard.id)) is not None:
                    found.backfills[guard.id] = backfill_of(item).start
            case KeyFree(record) | RequestNew(record):
                if (held := _record(record, rows)) is not None:
                    found.records[held.place] = held
            case QueueUnchanged(settings):
                if (item := rows.small(settings_key(settings.queue))) is not None:
                    found.queues[settings.queue] = settings_of(item)
            case NodeUnchanged():
                if (item := rows.small(node_key(guard.id))) is not None:
                    found.nodes[NodeId(guard.id)] = node_of(item).beat_at
    for put in change.puts:  # `admit` notes what becomes of these
        if isinstance(put, JobMoved) and (item := rows.jobs.get(put.id)) is not None:
            found.jobs.setdefault(put.id, JobUnchanged.of(job_of_item(item)))
        if isinstance(put, StopRequested):
            _find_run(found, put.run_id, rows)
    return found


def _find_run(found: Found, ident: str, rows: NamedRows) -> None:
    item = rows.runs.get(ident)
    if item is None:
        return
    run = run_of(item)
    if run.state not in FINAL:
        found.runs[run.id] = RunUnchanged.of(run)
    elif "dead" in item:
        found.letters.add(run.id)


def _is_cancelled(job_id: str, rows: NamedRows) -> bool:
    if (item := rows.jobs.get(job_id)) is not None:
        return str(item["s"]["S"]) == JobStatus.CANCELLED
    if (item := rows.runs.get(job_id)) is not None:
        run = run_of(item)
        return run.one_shot and one_shot_status(run) is JobStatus.CANCELLED
    return False


def _record(new: KeyHolder | IdempotencyRecord, rows: NamedRows) -> KeyHolder | IdempotencyRecord | None:
    """What is there in the place of a new record; one that is not valid any more gives way.

    A key is free when the run that held it has ended, even if its node could not free it any more.
    """
    item = rows.small(place_of_record(new))
    if item is None:
        return None
    found: KeyHolder | IdempotencyRecord = record_of(type(new), item)
    if isinstance(found, IdempotencyRecord) and isinstance(new, IdempotencyRecord):
        return found if found.is_valid(new.created_at) else None
    if isinstance(found, KeyHolder):
        held_by = rows.runs.get(found.job_id)
        return None if held_by is not None and run_of(held_by).state in FINAL else found
    return None


def require(actions: Actions, change: Change, rows: NamedRows, db: Database) -> None:
    """Make conditions of what the guards of a change rely on: these rows are still as they were read."""
    names = db.names
    for guard in change.guards:
        match guard:
            case JobUnchanged():
                actions.at(names.jobs, job_key(guard.id)).require_as(rows.jobs.get(guard.id), _JOB_GUARD)
            case JobNotCancelled():
                if guard.id in rows.jobs:
                    actions.at(names.jobs, job_key(guard.id)).require_as(rows.jobs[guard.id], ("s",))
                elif guard.id in rows.runs:
                    actions.at(names.runs, run_key(guard.id)).require_as(rows.runs[guard.id], ("s", "st"))
            case RunUnchanged():
                actions.at(names.runs, run_key(guard.id)).require_as(rows.runs.get(guard.id), _RUN_GUARD)
            case RunLive():
                actions.at(names.runs, run_key(guard.id)).require_any("s", _LIVE)
            case LetterOpen():
                actions.at(names.runs, run_key(guard.id)).require_present("dead")
            case BackfillUnchanged():
                if (item := rows.fills.get(guard.id)) is not None:
                    key = {name: item[name] for name in ("job", "sk")}
                    actions.at(names.jobs, key).require_as(item, ("from",))
            case KeyFree(record) | RequestNew(record):
                key = place_of_record(record)
                actions.at(names.meta, key).require_as(rows.small(key), ("v", "at"))
            case QueueUnchanged(settings):
                key = settings_key(settings.queue)
                actions.at(names.meta, key).require_as(rows.small(key), ("paused", "max"))
            case NodeUnchanged():
                key = node_key(guard.id)
                actions.at(names.meta, key).require_as(rows.small(key), ("b",))
            case Absent():
                pass  # a condition of what is put
