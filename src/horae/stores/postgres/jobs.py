"""Jobs in PostgreSQL: planning, firing and changing them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from horae.core.events import EventKind
from horae.core.firing import MAX_UNSTARTED, Due, Firing, Page
from horae.core.model import Backfill, Job, NodeId, Run, RunId, Trigger
from horae.core.records import Receipt
from horae.core.signals import Kind, Signal
from horae.core.values import replace
from horae.ports.store import Changed, JobChange, Plannable
from horae.stores.common.codecs import JOB_COLUMNS
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import OVER, PostgresBase, due_signal
from horae.stores.postgres.codecs import ROWS, columns
from horae.stores.postgres.create import ended_slots, fire_runs, plan_signal, write_firings, write_skips
from horae.stores.postgres.database import Session, retried
from horae.stores.postgres.events import add_events, telling
from horae.stores.postgres.gates import wake_parked, woken_signal
from horae.stores.postgres.idempotency import Outcome, with_receipts
from horae.stores.postgres.job_locks import hold

_COUNTS = len(JOB_COLUMNS)  # where the counts of a job's runs follow its columns
_PAGE = _COUNTS + 2  # where the columns of a backfill follow these


class PostgresJobs(PostgresBase):
    """The verbs of the store that deal with jobs."""

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""
        async with self._db.session() as session:
            jobs = await session.rows("plannable_jobs", shards, now, limit, MAX_UNSTARTED)
            pages = await session.rows("plannable_backfills", shards, now, limit, MAX_UNSTARTED)
            next_at = await session.value("next_plan_at", shards, now)
        return Plannable(
            jobs=[_due(row) for row in jobs],
            backfills=[(ROWS.backfill(row[_PAGE:]), _due(row)) for row in pages],
            next_at=next_at,
        )

    @retried
    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Apply each firing unless somebody moved the job first."""
        if not firings:
            return []
        first = {firing.job.id: firing for firing in reversed(firings)}  # of two for one job only one can win
        ordered = sorted(first.values(), key=lambda firing: firing.job.id)
        places = await self._places_of(run for firing in firings for run in firing.runs)
        async with self._db.transaction() as session:
            moved = {row[0] for row in await session.rows("fire_jobs", *columns(rows.firing, ordered))}
            won = [firing for firing in ordered if firing.job.id in moved]
            runs = await write_firings(session, won, places)
            await _free_keys(session, [firing.job for firing in won if firing.status in OVER])
            await add_events(session, telling((firing.event, firing.job.owner, firing.job.id) for firing in won))
        self._signals.send([*due_signal(runs), *plan_signal(firing.plan_at for firing in won)])
        return [firing.job.id in moved and first[firing.job.id] is firing for firing in firings]

    @retried
    async def fill(self, pages: Sequence[Page]) -> list[bool]:
        """Apply each page of a backfill unless somebody moved it first."""
        going = [page for page in pages if page.start is not None]
        ending = [page for page in pages if page.start is None]
        places = await self._places_of(run for page in pages for run in page.runs)
        async with self._db.transaction() as session:
            moved: set[str] = set()
            if going:
                given = columns(lambda page: (page.backfill.id, page.backfill.start, page.start, page.plan_at), going)
                moved |= {row[0] for row in await session.rows("move_backfills", *given)}
            if ending:
                given = columns(lambda page: (page.backfill.id, page.backfill.start), ending)
                moved |= {row[0] for row in await session.rows("end_backfills", *given)}
            runs = [run for page in pages if page.backfill.id in moved for run in page.runs]
            missed = [run for run in runs if run.trigger is Trigger.SCHEDULE]
            told = await ended_slots(session, missed) if missed else set()
            runs = [run for run in runs if run.trigger is not Trigger.SCHEDULE or (run.job_id, run.slot) not in told]
            await fire_runs(session, runs, places)
            await write_skips(session, [skip for page in pages if page.backfill.id in moved for skip in page.skips])
        again = (page.plan_at for page in going if page.backfill.id in moved)
        self._signals.send([*due_signal(runs), *plan_signal(again)])
        return [page.backfill.id in moved for page in pages]

    @retried
    async def backfill(self, backfill: Backfill, receipt: Receipt | None = None) -> bool | Receipt:
        """Begin a backfill, or answer the earlier receipt and do nothing; False when its job is cancelled."""
        async with self._db.transaction() as session:
            standing = await hold(session, [backfill.job_id])

            async def act(begun: Sequence[Backfill]) -> list[Outcome[bool]]:
                if backfill.job_id in standing.cancelled:
                    return [Outcome(False, False)]
                await session.rows("add_backfills", *columns(rows.backfill, begun))
                return [Outcome(True, True)]

            [answer] = await with_receipts(session, [backfill], lambda _: receipt, act)
        if answer is True:
            self._signals.send(plan_signal([backfill.plan_at]))
        return answer

    @retried
    async def change(self, change: JobChange) -> Changed | None:
        """Write a new version of a job; None when it has moved on."""
        job = change.job
        async with self._db.transaction() as session:
            written = await session.rows("change_job", *rows.changed_job(change))
            if not written:
                return None
            job = replace(job, next_fire_at=written[0][0])
            if job.status in OVER:
                await _free_keys(session, [job])
            woken: list[datetime] = []
            stopped: list[tuple[RunId, NodeId]] = []
            if change.retract_after is not None:
                job, woken = await _retract(session, replace(change, job=job), change.retract_after)
                if change.stop is not None:
                    found = await session.rows("stop_unstarted", job.id, change.retract_after, change.stop)
                    stopped = [(row[0], row[1]) for row in found]
            await add_events(session, telling([(change.event, job.owner, job.id)]))
        stops = (Signal(kind=Kind.STOP, node=node) for node in {node for _, node in stopped})
        self._signals.send([*stops, *woken_signal(woken), *plan_signal([job.plan_at])])
        return Changed(job=job, stopped=[run_id for run_id, _ in stopped])

    @retried
    async def change_one_shot(self, run: Run, *, expected: int, event: EventKind | None = None) -> bool:
        """Write a new version of a one-shot that still waits; False when it moved on."""
        places = await self._places_of([run])
        async with self._db.transaction() as session:
            before = await session.rows("change_one_shot", *rows.changed_one_shot(run, expected, places))
            if not before:
                return False
            [[gate, wake_at]] = before
            # It may have gone out of the way of another.
            woken = await wake_parked(session, {} if gate is None else {gate: wake_at})
            await add_events(session, telling([(event, run.owner, run.job_id)]))
        self._signals.send(woken_signal(woken if run.paused else [*woken, run.wake_at]))
        return True


async def _retract(session: Session, change: JobChange, after: datetime) -> tuple[Job, list[datetime]]:
    """Take back what waits and is due later; answers the job, perhaps set back, and when runs of its gates go on."""
    job = change.job
    runs = await session.rows("retract_runs", job.id, after)
    skips = await session.rows("retract_skips", job.id, after)
    woken = await wake_parked(session, {row[1]: job.updated_at for row in runs if row[1] is not None})
    slots = [row[0] for row in (*runs, *skips)]
    if change.rewind and slots:
        job = replace(job, next_fire_at=await session.value("rewind_job", job.id, min(slots)))
    return job, woken


async def _free_keys(session: Session, jobs: Sequence[Job]) -> None:
    keyed = [job for job in jobs if job.spec.key is not None]
    if keyed:
        await session.rows("free_keys", *columns(lambda job: (job.owner, job.spec.key, job.id), keyed))


def _due(row: Sequence[Any]) -> Due:
    """A job with how many of its runs are alive, from JOB_COLUMNS and two counts."""
    return Due(job=ROWS.job(row), unstarted=row[_COUNTS], live=row[_COUNTS + 1])
