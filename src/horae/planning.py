"""Writes firings of jobs and pages of backfills, for planners and for changes of jobs."""

from collections.abc import Sequence
from datetime import datetime

from horae.core.decisions.firing import MAX_UNSTARTED, Firing, Page, may_repeat, without_filled
from horae.core.effects import fill_backfill, fire_job
from horae.core.model import Run, Trigger
from horae.core.values import replace
from horae.ports.store import Store


async def write_firings(store: Store, firings: Sequence[Firing]) -> list[bool]:
    """Apply each firing unless another planner, or a change of its job, was first."""
    fresh = [replace(each, runs=await _fresh(store, each.runs)) if may_repeat(each) else each for each in firings]
    return [refusal is None for refusal in await store.apply([fire_job(firing) for firing in fresh])]


async def write_pages(store: Store, pages: Sequence[Page]) -> list[bool]:
    """Apply each page of a backfill unless another planner was first."""
    fresh = [replace(page, runs=await _fresh(store, page.runs)) for page in pages]
    return [refusal is None for refusal in await store.apply([fill_backfill(page) for page in fresh])]


async def _fresh(store: Store, runs: Sequence[Run]) -> tuple[Run, ...]:
    """Remove runs of slots that already have one."""
    slots: list[datetime] = [run.slot for run in runs if run.trigger is Trigger.SCHEDULE and run.slot is not None]
    if not slots:
        return tuple(runs)
    ledger = await store.ledger(runs[0].job_id, start=min(slots), end=max(slots), limit=2 * MAX_UNSTARTED)
    return without_filled(runs, ledger.runs)
