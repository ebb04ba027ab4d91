"""The rows that guards of changes name, in PostgreSQL: locked until the transaction ends."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from horae.core.changes import Found, JobUnchanged, RunUnchanged
from horae.core.errors import Unavailable
from horae.core.job_rules import one_shot_status
from horae.core.model import JobId, JobStatus, NodeId, Reason, Run, RunId, State
from horae.core.records import RECEIPT_LIFE, KeyHolder, QueueSettings, Receipt
from horae.stores.common.apply import Named
from horae.stores.postgres.codecs import ROWS, columns, first_day, receipt, receipt_of
from horae.stores.postgres.connection.database import Session

TRIES = 5  # a key or a receipt may be freed between the two looks at it, again and again

Place = tuple[str, str]  # owner, key
R = TypeVar("R")


@dataclass(slots=True)
class Locked:
    """What was found, and what was written to keep others from writing it first."""

    found: Found
    keys: Mapping[Place, KeyHolder] = field(default_factory=dict)  # that were free
    receipts: Mapping[Place, Receipt] = field(default_factory=dict)
    passed_over: list[datetime] = field(default_factory=list)  # when one-shots wake that claims skip while we hold them


async def lock(session: Session, named: Named) -> Locked:
    """Lock what guards name: each kind in the order of its keys, so that two batches never wait for each other."""
    found = Found()
    receipts, found.receipts = await _reserve(named.receipts, _take_receipts(session))
    keys, found.keys = await _reserve(named.keys, _take_keys(session))
    locked = Locked(found, keys, receipts)
    for ident, revision, next_fire_at, status in await _rows(session, "guarded_jobs", named.jobs):
        found.jobs[ident] = JobUnchanged(ident, revision, next_fire_at, JobStatus(status))
    if named.open_jobs:
        found.cancelled, locked.passed_over = await _cancelled(session, sorted(named.open_jobs))
    for ident, state, fence, revision, stop in await _rows(session, "guarded_runs", named.runs):
        found.runs[ident] = RunUnchanged(ident, State(state), fence, revision, None if stop is None else Reason(stop))
    if named.letters:
        letters = await session.rows("guarded_letters", sorted(named.letters), first_day(sorted(named.letters)))
        found.letters = {RunId(ident) for (ident,) in letters}
    found.backfills = dict(await _rows(session, "guarded_backfills", named.backfills))
    found.nodes = {NodeId(ident): at for ident, at in await _rows(session, "guarded_nodes", named.nodes)}
    await _rows(session, "reserve_queues", named.queues)
    for queue, paused, concurrency in await _rows(session, "guarded_queues", named.queues):
        found.queues[queue] = QueueSettings(queue=queue, paused=paused, concurrency=concurrency)
    return locked


async def _rows(session: Session, statement: str, names: Iterable[str]) -> list[Any]:
    ordered = sorted(names)
    return await session.rows(statement, ordered) if ordered else []


async def _cancelled(session: Session, ids: list[JobId]) -> tuple[set[JobId], list[datetime]]:
    """Which of the jobs are cancelled, and when one-shots wake that no claim can take while they are locked."""
    recurring = {row[0]: row[1] for row in await session.rows("hold_jobs", ids)}
    once = [job_id for job_id in ids if job_id not in recurring]
    live = [ROWS.run(row) for row in await session.rows("hold_one_shots", once)] if once else []
    # Looked for after the live ones: what ended while we waited for it is found here.
    ended = await _ended(session, sorted(set(once) - {run.job_id for run in live}))
    over = {JobId(job_id) for job_id, status in recurring.items() if status == JobStatus.CANCELLED}
    over |= {run.job_id for run in [*live, *ended] if one_shot_status(run) is JobStatus.CANCELLED}
    return over, [run.wake_at for run in live if run.node is None and not run.paused]


async def _ended(session: Session, job_ids: list[JobId]) -> list[Run]:
    if not job_ids:
        return []
    return [ROWS.run(row) for row in await session.rows("ended_runs_among", job_ids, first_day(job_ids))]


# Writes records where none is; returns the places that were free, and what was found in the others that still is there.
Take = Callable[[Sequence[Any]], Coroutine[Any, Any, tuple[set[Place], dict[Place, R]]]]


async def _reserve(wanted: Mapping[Place, Any], take: Take[R]) -> tuple[dict[Place, Any], dict[Place, R]]:
    """Take what is free: whoever takes it at the same time is waited for, and of several exactly one is first."""
    taken: dict[Place, Any] = {}
    found: dict[Place, R] = {}
    for _ in range(TRIES):
        waiting = [record for place, record in wanted.items() if place not in taken and place not in found]
        if not waiting:
            return taken, found
        free, there = await take(waiting)
        taken |= {place: wanted[place] for place in free}
        found |= there
    raise Unavailable("keys are being taken and freed too fast; try again")


def _take_keys(session: Session) -> Take[JobId]:
    async def take(holders: Sequence[KeyHolder]) -> tuple[set[Place], dict[Place, JobId]]:
        given = columns(lambda holder: (holder.owner, holder.key, holder.job_id), holders)
        free = {(row[0], row[1]) for row in await session.rows("take_keys", *given)}
        there = await session.rows("key_holders", *given[:2])
        return free, {(row[0], row[1]): row[2] for row in there if (row[0], row[1]) not in free}

    return take


def _take_receipts(session: Session) -> Take[Receipt]:
    async def take(receipts: Sequence[Receipt]) -> tuple[set[Place], dict[Place, Receipt]]:
        given = columns(receipt, receipts)
        free = {(row[0], row[1]) for row in await session.rows("take_receipts", *given, RECEIPT_LIFE)}
        there = [receipt_of(row) for row in await session.rows("receipts", *given[:2])]
        return free, {each.place: each for each in there if each.place not in free}

    return take
