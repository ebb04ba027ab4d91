"""Creating, firing and changing jobs in SQLite."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from horae.core.events import EventKind
from horae.core.firing import MAX_UNSTARTED, Due, Firing, Page, may_repeat
from horae.core.job_rules import needs_live_job
from horae.core.model import Backfill, Job, JobId, JobStatus, NodeId, Run, RunId, Trigger
from horae.core.records import Receipt
from horae.core.values import replace
from horae.ports.store import NOBODY, Changed, JobChange, Plannable, Receipted, Retraction
from horae.stores.sqlite import batches, idempotency, queues
from horae.stores.sqlite.claim import wake_next
from horae.stores.sqlite.codecs import (
    ROWS,
    backfill_values,
    changed_job_values,
    changed_one_shot_values,
    job_values,
    maybe_micros,
    maybe_time,
    skip_values,
    to_blob,
    to_hex,
    to_json,
    to_micros,
    to_time,
)
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction

_OVER = (JobStatus.FINISHED, JobStatus.CANCELLED)


class _NewRuns:
    """Runs to be written, encoded."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.encoded = batches.encode(runs)
        self.wake_at = min((run.wake_at for run in runs if not run.paused), default=None)


def creating(items: Sequence[Run | Firing | Receipted]) -> Callable[[Transaction], list[JobId | Receipt]]:
    """Writes each item whose key is free and whose request is new; answers who holds the key, or the receipt.

    What nothing can stand in the way of, which is most, is made ready before the write lock is taken.
    """
    plain = [item for item in items if isinstance(item, Run) and item.one_shot and item.spec.key is None]
    if len(plain) < len(items):
        return lambda transaction: _create(transaction, items)
    new = _NewRuns(plain)

    def create(transaction: Transaction) -> list[JobId | Receipt]:
        _create_runs(transaction, new)
        return [run.job_id for run in plain]

    return create


def _create(transaction: Transaction, items: Sequence[Run | Firing | Receipted]) -> list[JobId | Receipt]:
    answers: list[JobId | Receipt] = []
    written: list[Run | Firing] = []
    for item in items:
        made, receipt = (item.item, item.receipt) if isinstance(item, Receipted) else (item, None)
        answers.append(_admitted(transaction.db, made, receipt))
        if answers[-1] == _job_id(made):
            written.append(made)
    _create_runs(transaction, _NewRuns([made for made in written if isinstance(made, Run)]))
    for firing in (made for made in written if isinstance(made, Firing)):
        _create_job(transaction, firing)
    return answers


def plannable(db: sqlite3.Connection, shards: Sequence[int], now: datetime, limit: int) -> Plannable:
    """Jobs and backfills whose `plan_at` has come."""
    which = {"shards": to_json(shards), "now": to_micros(now), "limit": limit}
    jobs = [ROWS.job(row) for row in db.execute(STATEMENTS["plannable_jobs"], which)]
    backfills = [ROWS.backfill(row) for row in db.execute(STATEMENTS["plannable_backfills"], which)]
    paired = [(backfill, job) for backfill in backfills if (job := _job(db, backfill.job_id)) is not None]
    [next_at] = db.execute(STATEMENTS["next_plan_at"], which).fetchone()
    return Plannable(
        jobs=[_due(db, job) for job in jobs],
        backfills=[(backfill, _due(db, job)) for backfill, job in paired],
        next_at=maybe_time(next_at),
    )


def fire(transaction: Transaction, firings: Sequence[Firing]) -> list[bool]:
    """Apply each firing unless somebody moved the job first."""
    return [_fire(transaction, firing) for firing in firings]


def fill(transaction: Transaction, pages: Sequence[Page]) -> list[bool]:
    """Apply each page of a backfill unless somebody moved it first."""
    return [_fill(transaction, page) for page in pages]


def begin_backfill(transaction: Transaction, backfill: Backfill, receipt: Receipt | None) -> bool | Receipt:
    """Write a new backfill, unless its request is not new or its job is cancelled."""
    if receipt is not None and (earlier := idempotency.earlier(transaction.db, receipt)) is not None:
        return earlier
    if _is_cancelled(transaction.db, backfill.job_id):
        return False
    if receipt is not None:
        idempotency.write(transaction.db, receipt)
    _insert_backfill(transaction, backfill)
    return True


def change(transaction: Transaction, change: JobChange) -> Changed | None:
    """Write a new version of a job, and take back what its schedule no longer asks for."""
    db, job = transaction.db, change.job
    stored = _job(db, job.id)
    if stored is None or stored.revision != change.expected or change.was not in (None, stored.status):
        return None
    stopped: list[RunId] = []
    if change.retract_after is not None:
        earliest = _retract(transaction, job, change.retract_after)
        stopped = _stop_unstarted(transaction, change)
        if change.rewind:
            times = [moment for moment in (stored.next_fire_at, earliest) if moment is not None]
            job = replace(job, next_fire_at=min(times, default=None))
    db.execute(STATEMENTS["change_job"], changed_job_values(job))
    if job.status in _OVER:
        _free_key(db, job.owner, job.spec.key, job.id)
    if change.event is not None:
        transaction.tell(change.event, job.owner, job.id)
    transaction.plan(job.plan_at)
    return Changed(job=job, stopped=stopped)


def retract(transaction: Transaction, runs: Sequence[Run], now: datetime) -> list[Retraction]:
    """Take back held runs of paused jobs, the latest slot first, so that none has a later one in its way."""
    answers = {
        run.id: _retract_held(transaction, run, now)
        for run in sorted(runs, key=lambda run: run.slot or run.due_at, reverse=True)
    }
    return [answers[run.id] for run in runs]


def _retract_held(transaction: Transaction, run: Run, now: datetime) -> Retraction:
    db, job = transaction.db, _job(transaction.db, run.job_id)
    if job is None or job.status in _OVER:
        return Retraction.OVER
    if job.status is not JobStatus.PAUSED or run.slot is None or run.due_at <= now:
        return Retraction.GOES_ON
    place = {"job_id": to_blob(run.job_id), "slot": to_micros(run.slot)}
    if db.execute(STATEMENTS["has_later_slot"], place).fetchone() is not None:
        return Retraction.GOES_ON
    if not db.execute(STATEMENTS["retract_held"], {"id": to_blob(run.id), "fence": run.fence}).rowcount:
        return Retraction.GOES_ON  # it moved on, as its node will find
    db.execute(STATEMENTS["rewind_job"], place)
    if run.gate is not None:
        wake_next(transaction, run.gate, now)
    if run.spec.queue in queues.limited(db):
        transaction.due(now)
    return Retraction.TAKEN_BACK


def change_one_shot(transaction: Transaction, run: Run, expected: int, event: EventKind | None) -> bool:
    """Write a new version of a one-shot that still waits."""
    db = transaction.db
    row = db.execute(STATEMENTS["run"], {"id": to_blob(run.id), "owner": None}).fetchone()
    if db.execute(STATEMENTS["change_one_shot"], changed_one_shot_values(run, expected)).rowcount == 0:
        return False
    before = ROWS.run(row)
    if before.gate is not None:
        wake_next(transaction, before.gate, before.wake_at)  # it may have gone out of the way
    if not run.paused:
        transaction.due(run.wake_at)
    if event is not None:
        transaction.tell(event, run.owner, run.job_id)
    return True


def _admitted(db: sqlite3.Connection, item: Run | Firing, receipt: Receipt | None) -> JobId | Receipt:
    """Who holds the key of a new job, or the receipt of an earlier request; a new receipt is written with its job."""
    if receipt is not None and (earlier := idempotency.earlier(db, receipt)) is not None:
        return earlier
    if needs_live_job(item) and _is_cancelled(db, _job_id(item)):
        return NOBODY
    holder = _key_holder(db, item)
    if receipt is not None and holder == _job_id(item):
        idempotency.write(db, receipt)
    return holder


def _key_holder(db: sqlite3.Connection, item: Run | Firing) -> JobId:
    """Who holds the key of a new job: itself, if it has none or could take it."""
    job = item.job if isinstance(item, Firing) else item
    own = _job_id(item)
    if job.spec.key is None or (isinstance(item, Run) and not item.one_shot):
        return own
    if db.execute(STATEMENTS["take_key"], (job.owner, job.spec.key, to_blob(own))).rowcount:
        return own
    [holder] = db.execute(STATEMENTS["key_holder"], (job.owner, job.spec.key)).fetchone()
    return JobId(to_hex(holder))


def _is_cancelled(db: sqlite3.Connection, job_id: JobId) -> bool:
    job = _job(db, job_id)
    if job is None:
        row = db.execute(STATEMENTS["one_shot"], {"id": to_blob(job_id), "owner": None}).fetchone()
        job = None if row is None else ROWS.one_shot(row)
    return job is not None and job.status is JobStatus.CANCELLED


def _job_id(item: Run | Firing) -> JobId:
    return item.job.id if isinstance(item, Firing) else item.job_id


def _free_key(db: sqlite3.Connection, owner: str, key: str | None, job_id: JobId) -> None:
    if key is not None:
        db.execute(STATEMENTS["free_key"], (owner, key, to_blob(job_id)))


def _fired(firing: Firing) -> Job:
    return replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)


def _create_runs(transaction: Transaction, new: _NewRuns) -> None:
    """Write new one-shots and manual runs; of the former listeners are told, but not when they are only sent again."""
    inserted, fresh = _insert_runs(transaction, new), new.runs
    if inserted < len(fresh):
        idents = {to_hex(ident) for (ident,) in transaction.db.execute(STATEMENTS["last_runs_inserted"], (inserted,))}
        fresh = [run for run in fresh if run.id in idents]
    created = defaultdict[str, list[str]](list)
    for run in fresh:
        if run.schedule is not None:
            created[run.owner].append(run.job_id)
    for owner, job_ids in created.items():
        transaction.tell(EventKind.JOB_CREATED, owner, *job_ids)


def _create_job(transaction: Transaction, firing: Firing) -> None:
    """Write a new recurring job with what its first firing brings."""
    if transaction.db.execute(STATEMENTS["insert_job"], job_values(_fired(firing))).rowcount:
        transaction.tell(EventKind.JOB_CREATED, firing.job.owner, firing.job.id)
    _insert_fired(transaction, firing)


def _insert_runs(transaction: Transaction, new: _NewRuns) -> int:
    """Write runs, and answer how many of them were new."""
    if new.wake_at is not None:
        transaction.due(new.wake_at)
    return batches.insert(transaction.db, new.encoded)


def _insert_fired(transaction: Transaction, firing: Firing) -> None:
    """What comes of a firing, beside the job itself."""
    runs = _untold(transaction.db, firing.runs) if may_repeat(firing) else firing.runs
    _insert_runs(transaction, _NewRuns(runs))
    transaction.db.executemany(STATEMENTS["insert_skip"], map(skip_values, firing.skips))
    if firing.backfill is not None:
        _insert_backfill(transaction, firing.backfill)
    transaction.plan(firing.plan_at)


def _insert_backfill(transaction: Transaction, backfill: Backfill) -> None:
    transaction.db.execute(STATEMENTS["insert_backfill"], backfill_values(backfill))
    transaction.plan(backfill.plan_at)


def _fire(transaction: Transaction, firing: Firing) -> bool:
    job = firing.job
    moved = transaction.db.execute(
        STATEMENTS["fire_job"],
        (
            maybe_micros(firing.next_fire_at),
            maybe_micros(firing.plan_at),
            firing.status.value,
            to_blob(job.id),
            job.revision,
            maybe_micros(job.next_fire_at),
        ),
    )
    if moved.rowcount == 0:
        return False
    _insert_fired(transaction, firing)
    if firing.status in _OVER:
        _free_key(transaction.db, job.owner, job.spec.key, job.id)
    if firing.event is not None:
        transaction.tell(firing.event, job.owner, job.id)
    return True


def _fill(transaction: Transaction, page: Page) -> bool:
    ident, start = to_blob(page.backfill.id), to_micros(page.backfill.start)
    if page.start is None:
        moved = transaction.db.execute(STATEMENTS["end_backfill"], (ident, start))
    else:
        following = (to_micros(page.start), to_micros(page.plan_at), ident, start)
        moved = transaction.db.execute(STATEMENTS["move_backfill"], following)
        transaction.plan(page.plan_at)
    if moved.rowcount == 0:
        return False
    _insert_runs(transaction, _NewRuns(_untold(transaction.db, page.runs)))
    transaction.db.executemany(STATEMENTS["insert_skip"], map(skip_values, page.skips))
    return True


def _untold(db: sqlite3.Connection, runs: Sequence[Run]) -> list[Run]:
    """Without those of the schedule whose slot has an ended run."""

    def is_told(run: Run) -> bool:
        place = (to_blob(run.job_id), maybe_micros(run.slot))
        return run.trigger is Trigger.SCHEDULE and db.execute(STATEMENTS["ended_slot"], place).fetchone() is not None

    return [run for run in runs if not is_told(run)]


def _retract(transaction: Transaction, job: Job, after: datetime) -> datetime | None:
    """Take back waiting runs and skips of slots that are still to come; answers the earliest of those."""
    which = {"job_id": to_blob(job.id), "after": to_micros(after)}
    runs = transaction.db.execute(STATEMENTS["retract_runs"], which).fetchall()
    skips = transaction.db.execute(STATEMENTS["retract_skips"], which).fetchall()
    for gate in {gate for _, gate in runs if gate is not None}:
        wake_next(transaction, gate, after)
    return min((to_time(slot) for slot, *_ in [*runs, *skips]), default=None)


def _stop_unstarted(transaction: Transaction, change: JobChange) -> list[RunId]:
    if change.stop is None or change.retract_after is None:
        return []
    which = {"job_id": to_blob(change.job.id), "after": to_micros(change.retract_after), "stop": change.stop.value}
    held = transaction.db.execute(STATEMENTS["stop_unstarted"], which).fetchall()
    for _, node in held:
        transaction.stop(NodeId(to_hex(node)))
    return [RunId(to_hex(run_id)) for run_id, _ in held]


def _job(db: sqlite3.Connection, job_id: JobId) -> Job | None:
    row = db.execute(STATEMENTS["job"], {"id": to_blob(job_id), "owner": None}).fetchone()
    return None if row is None else ROWS.job(row)


def _due(db: sqlite3.Connection, job: Job) -> Due:
    counts = {"job_id": to_blob(job.id), "bound": MAX_UNSTARTED}
    unstarted, live = db.execute(STATEMENTS["count_live"], counts).fetchone()
    return Due(job=job, unstarted=unstarted, live=live)
