"""The rows that guards of changes name, in PostgreSQL: locked until the transaction ends."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from horae.core.changes import Found, JobUnchanged, RunUnchanged
from horae.core.errors import Unavailable
from horae.core.job_rules import one_shot_status
from horae.core.model import JobId, JobStatus, NodeId, Reason, RunId, State
from horae.core.records import IDEMPOTENCY_LIFE, IdempotencyRecord, KeyHolder, QueueSettings
from horae.stores.common.apply import Named
from horae.stores.common.records import RecordRow, decode_record, encode_record
from horae.stores.postgres.base import find_ended
from horae.stores.postgres.codecs import ROWS, columns, first_day
from horae.stores.postgres.connection.database import Session

TRIES = 5  # a key may be freed between the two looks at it, again and again

Place = tuple[str, str, str]  # kind, owner and key of a record


@dataclass(slots=True)
class Locked:
    """What was found, and what was written to keep others from writing it first."""

    found: Found
    reserved: Mapping[Place, RecordRow] = field(default_factory=dict)  # records whose places were free
    passed_over: list[datetime] = field(default_factory=list)  # when one-shots wake that claims skip while we hold them


async def lock(session: Session, named: Named) -> Locked:
    """Lock what guards name: each kind in the order of its keys, so that two batches never wait for each other."""
    found = Found()
    locked = Locked(found, await _reserve(session, named.records.values(), found))
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
    ended = await find_ended(session, sorted(set(once) - {run.job_id for run in live}))
    over = {JobId(job_id) for job_id, status in recurring.items() if status == JobStatus.CANCELLED}
    over |= {run.job_id for run in [*live, *ended] if one_shot_status(run) is JobStatus.CANCELLED}
    return over, [run.wake_at for run in live if run.node is None and not run.paused]


async def _reserve(
    session: Session, wanted: Iterable[KeyHolder | IdempotencyRecord], found: Found
) -> dict[Place, RecordRow]:
    """Write records whose places are free, and find the others.

    Whoever writes the same at the same time is waited for, and of several exactly one is first.
    """
    waiting: dict[Place, RecordRow] = {row[:3]: row for row in map(encode_record, wanted)}
    reserved: dict[Place, RecordRow] = {}
    for _ in range(TRIES):
        if not waiting:
            return reserved
        given = columns(tuple, waiting.values())
        for place in await session.rows("reserve_records", *given, IDEMPOTENCY_LIFE):
            reserved[tuple(place)] = waiting.pop(tuple(place))
        for row in await session.rows("records_among", *given[:3]):
            if waiting.pop(tuple(row[:3]), None) is not None:
                record = decode_record(*row)
                found.records[record.place] = record
    raise Unavailable("keys are being taken and freed too fast; try again")
