"""Jobs in PostgreSQL: creating, planning, firing and changing them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from horae.core.errors import Unavailable
from horae.core.model import Backfill, Job, JobId, JobStatus, NodeId, Run, RunId
from horae.core.plan import MAX_UNSTARTED, Due, Firing, Page
from horae.store import Changed, JobChange, Kind, Plannable, Signal
from horae.stores import postgres_rows as rows
from horae.stores.postgres_base import PostgresBase, due_signal
from horae.stores.postgres_pool import Session, retried
from horae.stores.postgres_rows import ROWS, Places, columns

OVER = (JobStatus.FINISHED, JobStatus.CANCELLED)
KEY_TRIES = 5  # a key may be freed between the two looks at it, again and again

Item = Run | Firing


class PostgresJobs(PostgresBase):
    """The verbs of the store that deal with jobs."""

    @retried
    async def create(self, items: Sequence[Item]) -> list[JobId]:
        """Write one-shots, manual runs and recurring jobs; answers who holds the key of each."""
        runs = [item for item in items if isinstance(item, Run)]
        firings = [item for item in items if isinstance(item, Firing)]
        every_run = runs + [run for firing in firings for run in firing.runs]
        if not items:
            return []
        places = await self._places_of(every_run)
        if not firings and not any(_key_of(run) for run in runs):
            await self._db.rows("create_runs", [rows.new_run(run, places) for run in runs])
            holders = [run.job_id for run in runs]
        else:
            async with self._db.transaction() as session:
                holders = await _take_keys(session, items)
                won = [item for item, holder in zip(items, holders, strict=True) if holder == _job_id(item)]
                every_run = await _write(session, won, places)
                firings = [item for item in won if isinstance(item, Firing)]
        self._signals.send([*due_signal(every_run), *_plan_signal(firing.plan_at for firing in firings)])
        return holders

    async def plannable(self, shards: Sequence[int], *, now: datetime, limit: int) -> Plannable:
        """Jobs and backfills whose `plan_at` has come."""
        async with self._db.session() as session:
            jobs = await session.rows("plannable_jobs", shards, now, limit, MAX_UNSTARTED)
            pages = await session.rows("plannable_backfills", shards, now, limit, MAX_UNSTARTED)
            next_at = await session.value("next_plan_at", shards, now)
        return Plannable(
            jobs=[Due(job=ROWS.job(row), unstarted=row[20], live=row[21]) for row in jobs],
            backfills=[
                (ROWS.backfill(row[22:]), Due(job=ROWS.job(row), unstarted=row[20], live=row[21])) for row in pages
            ],
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
            runs = await _write_firings(session, won, places)
            await _free_keys(session, [firing.job for firing in won if firing.status in OVER])
        self._signals.send([*due_signal(runs), *_plan_signal(firing.plan_at for firing in won)])
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
            await _write_runs(session, runs, places)
        again = (page.plan_at for page in going if page.backfill.id in moved)
        self._signals.send([*due_signal(runs), *_plan_signal(again)])
        return [page.backfill.id in moved for page in pages]

    @retried
    async def backfill(self, backfills: Sequence[Backfill]) -> None:
        """Begin backfills."""
        if backfills:
            await self._db.rows("add_backfills", *columns(rows.backfill, backfills))
            self._signals.send(_plan_signal(item.plan_at for item in backfills))

    @retried
    async def change(self, change: JobChange) -> Changed | None:
        """Write a new version of a job; None when its revision has moved on."""
        job = change.job
        async with self._db.transaction() as session:
            written = await session.rows("change_job", *rows.changed_job(job, change.expected), change.rewind)
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
        stops = (Signal(kind=Kind.STOP, node=node) for node in {node for _, node in stopped})
        due = [Signal(kind=Kind.DUE, at=min(woken))] if woken else []
        self._signals.send([*stops, *due, *_plan_signal([job.plan_at])])
        return Changed(job=job, stopped=[run_id for run_id, _ in stopped])

    @retried
    async def change_one_shot(self, run: Run, *, expected: int) -> bool:
        """Write a new version of a one-shot that still waits; False when it moved on."""
        places = await self._places_of([run])
        async with self._db.transaction() as session:
            before = await session.rows("change_one_shot", *rows.changed_one_shot(run, expected, places))
            if not before:
                return False
            [[gate, wake_at]] = before
            # It may have gone out of the way of another.
            woken = [] if gate is None else await session.rows("wake_parked", [gate], [wake_at])
        times = [row[0] for row in woken] + ([] if run.paused else [run.wake_at])
        if times:
            self._signals.send([Signal(kind=Kind.DUE, at=min(times))])
        return True


async def _take_keys(session: Session, items: Sequence[Item]) -> list[JobId]:
    """Take the keys that are free; answers for each item the job that holds its key, itself where it has none."""
    holders = [_job_id(item) for item in items]
    keyed = [place for place, item in enumerate(items) if _key_of(item)]
    for _ in range(KEY_TRIES):
        if not keyed:
            return holders
        given = columns(_key_row, [items[place] for place in keyed])
        await session.rows("take_keys", *given)
        found = {keyed[row[0] - 1]: row[1] for row in await session.rows("key_holders", *given[:2])}
        for place, holder in found.items():
            holders[place] = holder
        keyed = [place for place in keyed if place not in found]
    raise Unavailable("keys are being taken and freed too fast; try again")


async def _write(session: Session, items: Sequence[Item], places: Places) -> list[Run]:
    """Write items whose keys are theirs; answers all runs that came with them."""
    runs = [item for item in items if isinstance(item, Run)]
    firings = [item for item in items if isinstance(item, Firing)]
    if firings:
        created = {row[0] for row in await session.rows("create_jobs", *columns(rows.new_job, firings))}
        firings = [firing for firing in firings if firing.job.id in created]  # the others were sent a second time
    await _write_runs(session, runs, places)
    return runs + await _write_firings(session, firings, places)


async def _write_runs(session: Session, runs: Sequence[Run], places: Places) -> None:
    if runs:
        await session.rows("create_runs", [rows.new_run(run, places) for run in runs])


async def _write_firings(session: Session, firings: Sequence[Firing], places: Places) -> list[Run]:
    runs = [run for firing in firings for run in firing.runs]
    skips = [skip for firing in firings for skip in firing.skips]
    backfills = [firing.backfill for firing in firings if firing.backfill is not None]
    await _write_runs(session, runs, places)
    if skips:
        await session.rows("add_skips", *columns(rows.skip, skips))
    if backfills:
        await session.rows("add_backfills", *columns(rows.backfill, backfills))
    return runs


async def _retract(session: Session, change: JobChange, after: datetime) -> tuple[Job, list[datetime]]:
    """Take back what waits and is due later; answers the job, perhaps set back, and when runs of its gates go on."""
    job = change.job
    runs = await session.rows("retract_runs", job.id, after)
    skips = await session.rows("retract_skips", job.id, after)
    gates = sorted({row[1] for row in runs if row[1] is not None})
    woken = await session.rows("wake_parked", gates, [job.updated_at] * len(gates)) if gates else []
    slots = [row[0] for row in (*runs, *skips)]
    if change.rewind and slots:
        job = replace(job, next_fire_at=await session.value("rewind_job", job.id, min(slots)))
    return job, [row[0] for row in woken]


async def _free_keys(session: Session, jobs: Sequence[Job]) -> None:
    keyed = [job for job in jobs if job.spec.key is not None]
    if keyed:
        await session.rows("free_keys", *columns(lambda job: (job.owner, job.spec.key, job.id), keyed))


def _plan_signal(times: Iterable[datetime | None]) -> list[Signal]:
    known = [at for at in times if at is not None]
    return [Signal(kind=Kind.PLAN, at=min(known))] if known else []


def _key_row(item: Item) -> tuple[str, str | None, JobId]:
    return (item.owner if isinstance(item, Run) else item.job.owner), _key_of(item), _job_id(item)


def _key_of(item: Item) -> str | None:
    """The key that an item must hold; runs of a recurring job do not hold its key."""
    if isinstance(item, Firing):
        return item.job.spec.key
    return item.spec.key if item.one_shot else None


def _job_id(item: Item) -> JobId:
    return item.job_id if isinstance(item, Run) else item.job.id
