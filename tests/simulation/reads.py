"""Calls every method of the reader and the event log, as the API would for some run, so that each one meets faults."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from horae.core.model import LOCAL, Run
from horae.core.records import Declaration
from horae.ports.reader import JobFilter, Kept, RunFilter
from horae.ports.store import Store

MINUTE = timedelta(minutes=1)
LETTERS = RunFilter(dead_letters=True)

ReadCall = Callable[[Store, Run, datetime], Awaitable[Any]]

READ_CALLS: Mapping[str, ReadCall] = {
    "jobs": lambda store, run, now: store.jobs([run.job_id]),
    "runs": lambda store, run, now: store.runs([run.id]),
    "attempts": lambda store, run, now: store.attempts([run.id]),
    "last_runs": lambda store, run, now: store.last_runs([run.job_id], now=now),
    "list_jobs": lambda store, run, now: store.list_jobs(JobFilter(), cursor=None, limit=5),
    "list_runs": lambda store, run, now: store.list_runs(RunFilter(), cursor=None, limit=5),
    "ids": lambda store, run, now: store.ids(run.id, run.id, limit=5),
    "ledger": lambda store, run, now: store.ledger(run.job_id, start=now - MINUTE, end=now, limit=5),
    "ahead_of": lambda store, run, now: store.ahead_of(run),
    "records": lambda store, run, now: store.records(Declaration, owner=LOCAL),
    "nodes": lambda store, run, now: store.nodes(),
    "queues": lambda store, run, now: store.queues(now=now),
    "queue_lateness": lambda store, run, now: store.queue_lateness(since=now - MINUTE),
    "due_soon": lambda store, run, now: store.due_soon(now=now, within=MINUTE),
    "kept_by": lambda store, run, now: store.kept_by(run.owner, Kept.LIVE, cursor=None, limit=5),
    "dead_letter_groups": lambda store, run, now: store.dead_letter_groups(LETTERS),
    "count_dead_letters": lambda store, run, now: store.count_dead_letters(),
    "events.read": lambda store, run, now: store.events.read(after=None, owner=None, limit=5),
    "events.last": lambda store, run, now: store.events.last(),
}


async def read_everything(store: Store, now: datetime) -> None:
    """Call every method for the run that is due last."""
    latest = await store.list_runs(RunFilter(), cursor=None, limit=1)
    for run in latest.items:
        for read_call in READ_CALLS.values():
            await read_call(store, run, now)
