"""What use cases and the engine do with a store, as single steps: changes of the core, applied."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from horae.core import effects
from horae.core.changes import (
    Absent,
    BackfillUnchanged,
    JobMoved,
    JobNotCancelled,
    LetterResolved,
    NodeUnchanged,
    OneShotRevised,
    Parked,
    Refusal,
    StopRequested,
)
from horae.core.decisions.firing import Firing, Page
from horae.core.events import EventKind
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Backfill, Job, JobId, JobStatus, Node, NodeId, Reason, Run, RunId, State, Trigger
from horae.core.records import SETTINGS, Declaration, IdempotencyRecord, KeyHolder, QueueSettings
from horae.core.values import Value, replace
from horae.engine.worker.retraction import Retraction, retract
from horae.jobs.create import NewItem, write_new
from horae.jobs.optimistic import write_change
from horae.lookup import queue_settings
from horae.planning import write_firings, write_pages
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests.clocks import ManualClock

__all__ = ["Retraction", "retract"]

NOBODY = JobId("")  # holds the key of what was not created, because its job is cancelled


class WithRecord(Value, frozen=True, kw_only=True):
    """Something to create together with its record."""

    item: Run | Firing
    record: IdempotencyRecord


class Resolution(Value, frozen=True, kw_only=True):
    """What becomes of a dead letter: the run that replaces it, or nothing when it is discarded."""

    run_id: RunId
    successor: Run | None = None
    record: IdempotencyRecord | None = None


class JobChange(Value, frozen=True, kw_only=True):
    """A new version of a recurring job, if its revision is still `expected`, and its status `was` (None takes any)."""

    job: Job
    expected: int
    was: JobStatus | None = None
    retract_after: datetime | None = None
    rewind: bool = False
    stop: Reason | None = None
    event: EventKind | None = None


class Changed(Value, frozen=True, kw_only=True):
    """The job as it was written, and the runs that were asked to stop."""

    job: Job
    stopped: Sequence[RunId] = ()


async def create(store: Store, items: Sequence[Run | Firing | WithRecord]) -> list[JobId | IdempotencyRecord]:
    """Create one-shots, manual runs and recurring jobs; for each the id of the job that has its key, or a record."""
    new = [
        NewItem(item=item.item, record=item.record) if isinstance(item, WithRecord) else NewItem(item=item)
        for item in items
    ]
    return [_holder(each.item, refusal) for each, refusal in zip(new, await write_new(store, new), strict=True)]


def _holder(item: Run | Firing, refusal: Refusal | None) -> JobId | IdempotencyRecord:
    if refusal is None:
        return item.job.id if isinstance(item, Firing) else item.job_id
    if refusal.found is None:
        return NOBODY
    return refusal.found.job_id if isinstance(refusal.found, KeyHolder) else refusal.found


async def fire(store: Store, firings: Sequence[Firing]) -> list[bool]:
    """Apply each firing unless somebody moved its job first."""
    return await write_firings(store, firings)


async def fill(store: Store, pages: Sequence[Page]) -> list[bool]:
    """Apply each page of a backfill unless somebody moved it first."""
    return await write_pages(store, pages)


async def backfill(store: Store, new: Backfill, record: IdempotencyRecord | None = None) -> bool | IdempotencyRecord:
    """Begin a backfill; the earlier record, or False when its job is cancelled."""
    [refusal] = await store.apply([effects.begin_backfill(new, record)])
    if refusal is None:
        return True
    return refusal.found if isinstance(refusal.found, IdempotencyRecord) else False


async def change(store: Store, given: JobChange) -> Changed | None:
    """Write a new version of a job; None when it has moved on."""
    before = (await store.jobs([given.job.id])).get(given.job.id)
    if before is None or before.revision != given.expected or given.was not in (None, before.status):
        return None
    held = RunFilter(job_id=before.id, states=frozenset({State.CLAIMED}))
    planned = [
        run.id
        for run in (await store.list_runs(held, cursor=None, limit=1000)).items
        if given.retract_after is not None and run.due_at > given.retract_after and run.trigger is Trigger.SCHEDULE
    ]
    written = await write_change(
        store,
        ManualClock(given.retract_after or before.updated_at),
        before,
        given.job,
        retract_after=given.retract_after,
        rewind=given.rewind,
        stop=given.stop,
        event=given.event,
    )
    if written is None:
        return None
    return Changed(job=written, stopped=planned if given.stop is not None else [])


async def change_one_shot(store: Store, run: Run, *, expected: int, event: EventKind | None = None) -> bool:
    """Write a new version of a one-shot that still waits; False when it moved on."""
    before = (await store.runs([run.id])).get(run.id)
    if before is None or before.revision != expected or before.state in FINAL | HELD:
        return False
    return await store.apply([effects.change_one_shot(before, run, event=event)]) == [None]


async def park(store: Store, runs: Sequence[Run]) -> None:
    """Keep runs away from claims that are behind others in their gates."""
    for run in runs:
        if ahead := [other for other in await store.ahead_of(run) if other.id != run.id]:
            failed = ahead[0].state in FINAL
            rival = effects.Rival(id=ahead[0].id, job_id=ahead[0].job_id, started_at=None, failed=failed)
            await store.apply([effects.park(run, rival)])


async def request_stop(store: Store, run_ids: Sequence[RunId], reason: Reason) -> list[NodeId | None]:
    """Ask the nodes that hold the runs to stop them; None where nobody holds it."""
    found = await store.runs(run_ids)
    held = {run.id: run for run in found.values() if run.state in HELD}
    await store.apply([effects.request_stop(run, reason) for run in held.values()])
    return [held[run_id].node if run_id in held else None for run_id in run_ids]


async def resolve(store: Store, resolutions: Sequence[Resolution], *, now: datetime) -> list[bool | IdempotencyRecord]:
    """Resolve dead letters; False where it is none (any more)."""
    letters = await store.runs([each.run_id for each in resolutions])
    known = [each for each in resolutions if each.run_id in letters]
    changes = [effects.resolve_letter(letters[each.run_id], each.successor, each.record, now=now) for each in known]
    answers = dict(zip(map(id, known), await store.apply(changes), strict=True))
    return [_resolved(answers[id(each)]) if id(each) in answers else False for each in resolutions]


def _resolved(refusal: Refusal | None) -> bool | IdempotencyRecord:
    if refusal is None:
        return True
    return refusal.found if isinstance(refusal.found, IdempotencyRecord) else False


async def keep_record(store: Store, record: IdempotencyRecord) -> IdempotencyRecord:
    """Keep the answer to a request unless there is one; the record that holds."""
    [refusal] = await store.apply([effects.keep_record(record)])
    return record if refusal is None or not isinstance(refusal.found, IdempotencyRecord) else refusal.found


async def set_queue(store: Store, settings: QueueSettings, *, fields: Collection[str] = SETTINGS) -> None:
    """Change those fields of the settings of a queue."""
    before = await queue_settings(store, settings.queue)
    after = replace(before, **{name: getattr(settings, name) for name in fields})
    assert await store.apply([effects.set_queue(before, after)]) == [None]


async def declare(store: Store, owner: str, declarations: Sequence[Declaration]) -> None:
    """Note versions of declared schedules."""
    assert {each.owner for each in declarations} <= {owner}
    await store.apply([effects.declare(each) for each in declarations])


async def forget(store: Store, owner: str, *, app: str, keys: Sequence[str]) -> None:
    """Forget every version of some declared schedules."""
    known = [each for each in await store.records(Declaration, owner=owner) if each.app == app and each.key in keys]
    await store.apply([effects.Change(deletes=tuple(known))])


async def register(store: Store, node: Node) -> None:
    """Make a node and its tasks known."""
    await store.apply([effects.register_node(node)])


async def unregister(store: Store, node_id: NodeId) -> None:
    """Let a node leave in order."""
    await store.apply([effects.unregister_node(node) for node in await store.nodes() if node.id == node_id])


async def bury(store: Store, *, now: datetime, dead_after: timedelta) -> list[NodeId]:
    """Remove nodes whose last beat is older."""
    silent = [node for node in await store.nodes() if node.beat_at < now - dead_after]
    refusals = await store.apply([effects.remove_dead_node(node) for node in silent])
    return [node.id for node, refusal in zip(silent, refusals, strict=True) if refusal is None]


_ACTS: tuple[tuple[str, type, str], ...] = (  # where a type is named in a change of this act, the first that fits
    ("guards", JobNotCancelled, "run_now"),
    ("guards", Absent, "create"),
    ("guards", BackfillUnchanged, "fill"),
    ("puts", Parked, "park"),
    ("puts", LetterResolved, "resolve"),
    ("guards", NodeUnchanged, "bury"),
    ("puts", Node, "register"),
    ("deletes", Node, "unregister"),
    ("puts", OneShotRevised, "change_one_shot"),
    ("puts", QueueSettings, "set_queue"),
    ("puts", Declaration, "declare"),
    ("deletes", Declaration, "forget"),
    ("puts", Job, "change"),
    ("deletes", Run, "retract"),
    ("puts", StopRequested, "request_stop"),
    ("puts", JobMoved, "fire"),
    ("puts", IdempotencyRecord, "keep_record"),
)
ACTS = ("backfill", *(name for _, _, name in _ACTS))


def act_of(change: effects.Change) -> str:
    """The act that writes a change, by the name that it has here."""
    if any(isinstance(guard, JobNotCancelled) for guard in change.guards) and any(
        isinstance(put, Backfill) for put in change.puts
    ):
        return "backfill"
    return next(name for part, kind, name in _ACTS if any(isinstance(item, kind) for item in getattr(change, part)))
