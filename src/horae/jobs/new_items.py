"""Writes new jobs and runs: plain one-shots the fast way, everything else as changes."""

from collections.abc import Sequence

from horae.core.changes import Absent, Change, Refusal
from horae.core.decisions.firing import Firing
from horae.core.effects import create_job, create_manual_run, create_one_shot
from horae.core.model import JobId, Run
from horae.core.records import IdempotencyRecord, KeyHolder
from horae.core.values import Value
from horae.ports.store import Store


class NewItem(Value, frozen=True, kw_only=True):
    """A one-shot or a manual run, or the first firing of a recurring job; with its record if it may be sent again."""

    item: Run | Firing
    record: IdempotencyRecord | None = None


async def write_new(store: Store, items: Sequence[NewItem]) -> list[Refusal | None]:
    """Write each item whose key is free and whose request is new; None, also for what was written before."""
    plain = [new.item for new in items if not isinstance(new.item, Firing) and _is_plain(new.item, new.record)]
    if plain:
        await store.create(plain)
    if len(plain) == len(items):
        return [None] * len(items)
    written = {run.id for run in plain}
    tied = [new for new in items if isinstance(new.item, Firing) or new.item.id not in written]
    refusals = iter(await store.apply([_creation(new) for new in tied]))
    return [
        None if not isinstance(new.item, Firing) and new.item.id in written else _unless_there(next(refusals))
        for new in items
    ]


def _is_plain(run: Run, record: IdempotencyRecord | None) -> bool:
    return run.one_shot and run.spec.key is None and record is None


def _creation(new: NewItem) -> Change:
    if isinstance(new.item, Firing):
        return create_job(new.item, new.record)
    if new.item.one_shot:
        return create_one_shot(new.item, new.record)
    return create_manual_run(new.item, new.record)


def _unless_there(refusal: Refusal | None) -> Refusal | None:
    """What is there under its own id was written before, and is only sent again."""
    return None if refusal is None or isinstance(refusal.guard, Absent) else refusal


def earlier_record(refusal: Refusal | None) -> IdempotencyRecord | None:
    """The record of the earlier request, where that is why an item was not written."""
    return refusal.found if refusal is not None and isinstance(refusal.found, IdempotencyRecord) else None


def other_holder(refusal: Refusal | None) -> JobId | None:
    """The other job that holds the key, where that is why an item was not written."""
    return refusal.found.job_id if refusal is not None and isinstance(refusal.found, KeyHolder) else None
