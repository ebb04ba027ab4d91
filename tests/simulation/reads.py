"""Calls every method of the reader port, as the API would for some run, so that each one meets faults."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from horae.core.model import LOCAL, Run
from horae.ports.reader import JobFilter, Reader, RunFilter

MINUTE = timedelta(minutes=1)
LETTERS = RunFilter(dead_letters=True)

ReadCall = Callable[[Reader, Run, datetime], Awaitable[Any]]

READ_CALLS: Mapping[str, ReadCall] = {
    "job": lambda store, run, now: store.job(run.job_id, owner=run.owner),
    "run": lambda store, run, now: store.run(run.id, owner=run.owner),
    "runs": lambda store, run, now: store.runs([run.id]),
    "ended": lambda store, run, now: store.ended([run.id]),
    "jobs": lambda store, run, now: store.jobs([run.job_id]),
    "attempts": lambda store, run, now: store.attempts(run.id),
    "last_runs": lambda store, run, now: store.last_runs([run.job_id], now=now),
    "list_jobs": lambda store, run, now: store.list_jobs(JobFilter(), cursor=None, limit=5),
    "list_runs": lambda store, run, now: store.list_runs(RunFilter(), cursor=None, limit=5),
    "ledger": lambda store, run, now: store.ledger(run.job_id, start=now - MINUTE, end=now, limit=5),
    "nodes": lambda store, run, now: store.nodes(),
    "tasks": lambda store, run, now: store.tasks(),
    "queues": lambda store, run, now: store.queues(now=now),
    "queue_lateness": lambda store, run, now: store.queue_lateness(since=now - MINUTE),
    "queue_settings": lambda store, run, now: store.queue_settings(run.spec.queue),
    "job_by_key": lambda store, run, now: store.job_by_key(run.owner, "nobody's"),
    "attempts_of": lambda store, run, now: store.attempts_of([run.id]),
    "ahead_of": lambda store, run, now: store.ahead_of(run),
    "dead_letter_groups": lambda store, run, now: store.dead_letter_groups(LETTERS),
    "receipt": lambda store, run, now: store.receipt(run.owner, "nobody's", now=now),
    "events": lambda store, run, now: store.events(after=None, owner=None, limit=5),
    "last_event": lambda store, run, now: store.last_event(),
    "declarations": lambda store, run, now: store.declarations(LOCAL),
    "dead_letters": lambda store, run, now: store.dead_letters(),
}


async def read_everything(store: Reader, now: datetime) -> None:
    """Call every method for the run that is due last."""
    latest = await store.list_runs(RunFilter(), cursor=None, limit=1)
    for run in latest.items:
        for read_call in READ_CALLS.values():
            await read_call(store, run, now)
