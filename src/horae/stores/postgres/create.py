"""Creating jobs and runs in PostgreSQL: keys and receipts first, then what they belong to."""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime

import asyncpg

from horae.core.errors import Unavailable
from horae.core.events import EventKind
from horae.core.firing import Firing, may_repeat
from horae.core.job_rules import needs_live_job
from horae.core.model import JobId, Run, Skip
from horae.core.records import Receipt
from horae.core.signals import Kind, Signal
from horae.ports.store import NOBODY, Receipted
from horae.stores.postgres import codecs as rows
from horae.stores.postgres.base import PostgresBase, due_signal
from horae.stores.postgres.codecs import Places, columns
from horae.stores.postgres.database import Collision, Database, Session, retried
from horae.stores.postgres.events import add_events
from horae.stores.postgres.gates import woken_signal
from horae.stores.postgres.idempotency import Outcome, with_receipts
from horae.stores.postgres.job_locks import hold

KEY_TRIES = 5  # a key may be freed between the two looks at it, again and again

Item = Run | Firing


class PostgresCreate(PostgresBase):
    """The verb of the store that creates."""

    @retried
    async def create(self, items: Sequence[Item | Receipted]) -> list[JobId | Receipt]:
        """Write one-shots, manual runs and recurring jobs; answers who holds the key of each, or an earlier receipt."""
        free = [item for item in items if isinstance(item, Run) and item.one_shot and not item.spec.key]
        if len(free) < len(items):
            return await self._create_tied(items)
        if free:  # the usual case is one statement
            places = await self._places_of(free)
            try:
                await _create_runs(self._db, free, places, again=False)
            except Collision:
                await _create_runs(self._db, free, places, again=True)
            self._signals.send(due_signal(free))
        return [run.job_id for run in free]

    async def _create_tied(self, items: Sequence[Item | Receipted]) -> list[JobId | Receipt]:
        """Write items that take keys, come with receipts, are more than one row or belong to another one."""
        places = await self._places_of(run for item in items for run in _runs_of(_plain(item)))
        written: list[Item] = []

        async with self._db.transaction() as session:
            standing = await hold(session, [_job_id(item) for item in map(_plain, items) if needs_live_job(item)])

            async def act(turn: Sequence[Item | Receipted]) -> list[Outcome[JobId]]:
                mine = [_plain(item) for item in turn]
                holders = await _take_keys(session, mine, standing.cancelled)
                won = [holder == _job_id(item) for item, holder in zip(mine, holders, strict=True)]
                written.extend(item for item, is_won in zip(mine, won, strict=True) if is_won)
                return [Outcome(holder, is_won) for holder, is_won in zip(holders, won, strict=True)]

            answers = await with_receipts(session, items, _receipt_of, act)
            runs = await _write(session, written, places)
        planned = plan_signal(item.plan_at for item in written if isinstance(item, Firing))
        self._signals.send([*due_signal(runs), *woken_signal(standing.passed_over), *planned])
        return answers


async def _take_keys(session: Session, items: Sequence[Item], cancelled: Container[JobId]) -> list[JobId]:
    """Take the keys that are free; answers for each item the job that holds its key, itself where it has none.

    Nobody for what must not come after the cancel of its job.
    """
    holders = [NOBODY if needs_live_job(item) and _job_id(item) in cancelled else _job_id(item) for item in items]
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
    await write_runs(session, runs, places)
    await add_events(session, ((EventKind.JOB_CREATED, firing.job.owner, firing.job.id) for firing in firings))
    return runs + await write_firings(session, firings, places)


async def write_runs(session: Session, runs: Sequence[Run], places: Places) -> None:
    """Write new runs, and the events of those that are jobs as well."""
    if runs:
        await _create_runs(session, runs, places, again=True)


async def fire_runs(session: Session, runs: Sequence[Run], places: Places) -> None:
    """Write runs of schedules; whoever moved their job or backfill in this transaction is the only one who does."""
    if runs:
        once = {run.id: run for run in runs}.values()  # a page may come twice
        await session.rows("fire_runs", rows.new_runs(once, places))


async def _create_runs(place: Database | Session, runs: Sequence[Run], places: Places, *, again: bool) -> None:
    """Write new runs; `again` when some of them may be there already, or come twice."""
    once = {run.id: run for run in runs}.values() if again else runs
    try:
        await place.rows("create_runs", rows.new_runs(once, places), again)
    except asyncpg.UniqueViolationError as exc:
        raise Collision("runs with these ids are there already, or are being written; try again") from exc


async def write_firings(session: Session, firings: Sequence[Firing], places: Places) -> list[Run]:
    """Write what firings make, but for their jobs; answers the runs."""
    suspects = [run for firing in firings if may_repeat(firing) for run in firing.runs]
    told = await ended_slots(session, suspects) if suspects else set()
    runs = [run for firing in firings for run in firing.runs if (run.job_id, run.slot) not in told]
    skips = [skip for firing in firings for skip in firing.skips]
    backfills = [firing.backfill for firing in firings if firing.backfill is not None]
    await fire_runs(session, runs, places)
    await write_skips(session, skips)
    if backfills:
        await session.rows("add_backfills", *columns(rows.backfill, backfills))
    return runs


async def write_skips(session: Session, skips: Sequence[Skip]) -> None:
    """Write slots that were left out."""
    if skips:
        await session.rows("add_skips", *columns(rows.skip, skips))


async def ended_slots(session: Session, runs: Sequence[Run]) -> set[tuple[JobId, datetime | None]]:
    """The slots of these runs that have an ended run of the schedule, each with its job."""
    given = columns(lambda run: (run.job_id, run.slot), runs)
    return {(JobId(job_id), slot) for job_id, slot in await session.rows("ended_slots", *given)}


def plan_signal(times: Iterable[datetime | None]) -> list[Signal]:
    """That there is something to plan, from the earliest of these times on."""
    known = [at for at in times if at is not None]
    return [Signal(kind=Kind.PLAN, at=min(known))] if known else []


def _plain(item: Item | Receipted) -> Item:
    return item.item if isinstance(item, Receipted) else item


def _receipt_of(item: Item | Receipted) -> Receipt | None:
    return item.receipt if isinstance(item, Receipted) else None


def _runs_of(item: Item) -> Sequence[Run]:
    return [item] if isinstance(item, Run) else item.runs


def _key_row(item: Item) -> tuple[str, str | None, JobId]:
    return (item.owner if isinstance(item, Run) else item.job.owner), _key_of(item), _job_id(item)


def _key_of(item: Item) -> str | None:
    """The key that an item must hold; runs of a recurring job do not hold its key."""
    if isinstance(item, Firing):
        return item.job.spec.key
    return item.spec.key if item.one_shot else None


def _job_id(item: Item) -> JobId:
    return item.job_id if isinstance(item, Run) else item.job.id
