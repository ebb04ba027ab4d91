"""Reads a whole store as a history, and checks it in both ways."""

from datetime import datetime, timedelta

from horae.core.model import Backfill, JobId, Run, RunId, Skip
from horae.core.records import KeyHolder, ScheduleTrail
from horae.ports.reader import JobFilter, RunFilter
from horae.ports.store import Store
from horae.proof.checking import Checker, History, Violation, violations
from horae.proof.checking.store.end_events import end_events

EVERYTHING = 100_000


async def read_history(store: Store, now: datetime) -> History:
    listed = await store.list_jobs(JobFilter(), cursor=None, limit=EVERYTHING)
    jobs = [job for job in listed.items if job.recurring]
    runs = await runs_of(store, RunFilter())
    skips: list[Skip] = []
    backfills: list[Backfill] = []
    trails: dict[JobId, ScheduleTrail] = {}
    for job in jobs:
        for trail in await store.records(ScheduleTrail, owner=job.owner, key=job.id):
            trails[job.id] = trail
        ledger = await store.ledger(job.id, start=job.created_at, end=now + timedelta(days=30), limit=1)
        skips += ledger.skips
        backfills += ledger.backfills
    owners = {each.owner for each in (*jobs, *runs)}
    holders = [holder for owner in owners for holder in await store.records(KeyHolder, owner=owner)]
    return History(
        now=now,
        jobs=jobs,
        runs=runs,
        attempts=await store.attempts([run.id for run in runs]),
        skips=skips,
        backfills=backfills,
        trails=trails,
        keys={(holder.owner, holder.key): holder.job_id for holder in holders},
        dead_letters=frozenset[RunId](run.id for run in await runs_of(store, RunFilter(dead_letters=True))),
        end_events=await end_events(store.events, [run.id for run in runs], owner=None),
    )


async def runs_of(store: Store, which: RunFilter) -> list[Run]:
    return list((await store.list_runs(which, cursor=None, limit=EVERYTHING)).items)


async def found_in(store: Store, now: datetime) -> list[Violation]:
    """The violations that the checker finds in a store with virtual time."""

    async def time() -> datetime:
        return now

    return [violation async for violation in Checker(store, pause=0, now=time).violations()]


async def checked(store: Store, now: datetime) -> list[Violation]:
    """The violations that the checker finds, after asserting that `violations` finds the same."""
    found = await found_in(store, now)
    whole = violations(await read_history(store, now))
    assert {(each.code, each.subject) for each in found} == {(each.code, each.subject) for each in whole}
    return found
