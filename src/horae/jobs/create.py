"""Creates jobs, one by one or many at once, and runs outside of their schedule."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from horae.batcher import Batcher
from horae.core.changes import Absent, Change, JobNotCancelled, Refusal
from horae.core.decisions.firing import Firing
from horae.core.decisions.new_runs import manual_run
from horae.core.drafts import Draft
from horae.core.effects import create_job, create_manual_run, create_one_shot, fired_job
from horae.core.errors import HoraeError, KeyTaken, Unavailable
from horae.core.ids import Ids, NewId
from horae.core.job_rules import job_of
from horae.core.model import Job, JobId, JobStatus, Run
from horae.core.records import IdempotencyRecord, KeyHolder
from horae.core.values import Value, replace
from horae.jobs.idempotency import Ask, Idempotency, Issue, answer_of
from horae.jobs.optimistic import job_ended, refuse_cancelled
from horae.jobs.prepare import Item, Preparation
from horae.lookup import get_job
from horae.ports.clock import Clock
from horae.ports.permits import Permit, permit_all
from horae.ports.store import Store

BATCH = 500  # jobs of one request per write
SLICE = 100  # jobs that are prepared before other requests get their turn
TURN = 8  # ids that are made at a time for jobs that are created one by one


class NewItem(Value, frozen=True, kw_only=True):
    """A one-shot, a manual run or the first firing of a recurring job; with a record if its request has a key."""

    item: Item
    record: IdempotencyRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An iteration of the event loop; jobs that are created in it share their time, so stores can write them as one."""

    at: datetime
    new_id: NewId


class Creator:
    """Writes new jobs; those that are created at the same time share a commit."""

    def __init__(
        self, *, store: Store, clock: Clock, preparation: Preparation, idempotency: Idempotency, ids: Ids
    ) -> None:
        self._store = store
        self._clock = clock
        self._preparation = preparation
        self._idempotency = idempotency
        self._ids = ids
        self._creates: Batcher[NewItem, Refusal | None] = Batcher(lambda items: write_new(store, items))
        self._turn: Turn | None = None

    # --- one job

    async def create(self, draft: Draft, *, owner: str, by: str, permit: Permit = permit_all) -> Job:
        """Create one job together with its first runs; raises KeyTaken."""
        item = await self.prepare(draft, owner, by, permit)
        return _created(item, await self._creates.add(NewItem(item=item)))

    async def create_once(
        self, draft: Draft, *, owner: str, by: str, issue: Issue[Job], permit: Permit = permit_all
    ) -> Job | IdempotencyRecord:
        """Create one job together with its record, or return the record of an earlier request."""
        item = await self.prepare(draft, owner, by, permit)
        refusal = await self._creates.add(NewItem(item=item, record=await issue(_job_of(item))))
        return earlier_record(refusal) or _created(item, refusal)

    async def prepare(self, draft: Draft, owner: str, by: str, permit: Permit = permit_all) -> Item:
        """Check a draft and return the rows of its job; raises Invalid, or what `permit` raises."""
        permit(draft)
        turn = self._turn or self._begin_turn()
        return await self._preparation.item(draft, JobId(turn.new_id()), owner=owner, by=by, now=turn.at)

    def _begin_turn(self) -> Turn:
        self._turn = Turn(at=self._clock.now(), new_id=self._ids.batched(TURN))
        asyncio.get_running_loop().call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        self._turn = None

    async def write_if_free(self, item: Item) -> Job | None:
        """Write prepared rows; None when another job holds the key."""
        return _job_of(item) if await self._creates.add(NewItem(item=item)) is None else None

    # --- many jobs

    async def create_many(
        self,
        drafts: Sequence[Draft | HoraeError],
        *,
        owner: str,
        by: str,
        asks: Sequence[Ask | None] | None = None,
        permit: Permit = permit_all,
    ) -> list[JobId | HoraeError]:
        """Create each draft, and return its id or error; drafts that are errors already are passed on.

        `asks` make each draft idempotent by itself: one that was created before returns the id it got then.
        """
        drafts = [_permitted(draft, permit) for draft in drafts]
        outcomes: list[JobId | HoraeError] = []
        asks = [None] * len(drafts) if asks is None else asks
        items: list[Item | HoraeError] = []
        since = self._preparation.reads
        for start in range(0, len(drafts) + BATCH, BATCH):  # while one batch is written the next is prepared
            written, items = await asyncio.gather(
                self._write_all(items, asks[max(start - BATCH, 0) : start]),
                self._prepare_all(drafts[start : start + BATCH], owner, by, since),
            )
            outcomes += written
        _raise_if_down(outcomes)
        return outcomes

    async def _prepare_all(
        self, drafts: Sequence[Draft | HoraeError], owner: str, by: str, since: int
    ) -> list[Item | HoraeError]:
        items: list[Item | HoraeError] = []
        for start in range(0, len(drafts), SLICE):
            part = drafts[start : start + SLICE]
            now = self._clock.now()
            for draft, job_id in zip(part, self._ids.many(len(part)), strict=True):
                if isinstance(draft, HoraeError):
                    items.append(draft)
                    continue
                try:
                    item = await self._preparation.item(draft, JobId(job_id), owner=owner, by=by, now=now, since=since)
                    items.append(item)
                except HoraeError as exc:
                    items.append(exc)
            await asyncio.sleep(0)
        return items

    async def _write_all(
        self, items: Sequence[Item | HoraeError], asks: Sequence[Ask | None]
    ) -> list[JobId | HoraeError]:
        """Write the items that are not errors, and return the outcome of each."""
        pairs = [(item, ask) for item, ask in zip(items, asks, strict=True) if not isinstance(item, HoraeError)]
        if not pairs:
            return [item for item in items if isinstance(item, HoraeError)]
        try:
            refusals = await write_new(self._store, [self._with_record(*pair) for pair in pairs])
        except Unavailable as exc:
            return [item if isinstance(item, HoraeError) else exc for item in items]
        outcomes = iter([_outcome(*pair, refusal) for pair, refusal in zip(pairs, refusals, strict=True)])
        return [item if isinstance(item, HoraeError) else next(outcomes) for item in items]

    def _with_record(self, item: Item, ask: Ask | None) -> NewItem:
        return NewItem(item=item, record=None if ask is None else self._idempotency.of(ask, _id_of(item)))

    # --- running now

    async def run_now(
        self,
        job_id: JobId,
        params: str | None,
        *,
        owner: str | None,
        by: str,
        issue: Issue[Run] | None = None,
        permit: Permit = permit_all,
    ) -> Run | IdempotencyRecord:
        """Run the job once more now, even if it is paused or finished; or return the record of an earlier request."""
        job = await get_job(self._store, job_id, owner=owner)
        permit(job.spec)
        refuse_cancelled(job)
        run = replace(manual_run(job, now=self._clock.now(), new_id=self._ids), created_by=by)
        if params is not None:
            run = await self._preparation.with_params(run, params)
        refusal = await self._creates.add(NewItem(item=run, record=None if issue is None else await issue(run)))
        if refusal is not None and isinstance(refusal.guard, JobNotCancelled):
            raise job_ended(job_id, JobStatus.CANCELLED)
        return earlier_record(refusal) or run

    async def run_many(self, jobs: Sequence[Job], *, by: str, ask: Ask | None = None) -> int:
        """Run jobs once more now, and return how many; `ask` makes the run of each job idempotent by itself."""
        now = self._clock.now()
        running = [job for job in jobs if job.status is not JobStatus.CANCELLED]
        runs = [replace(manual_run(job, now=now, new_id=self._ids), created_by=by) for job in running]
        records = [None if ask is None else self._idempotency.of(ask.item(run.job_id), run.id) for run in runs]
        items = [NewItem(item=run, record=record) for run, record in zip(runs, records, strict=True)]
        refusals = await write_new(self._store, items)
        return sum(refusal is None or earlier_record(refusal) is not None for refusal in refusals)


# --- writing


async def write_new(store: Store, items: Sequence[NewItem]) -> list[Refusal | None]:
    """Write each item whose key is free and whose request is new; one that was written before is no refusal."""
    plain = [new.item for new in items if isinstance(new.item, Run) and _is_plain(new)]
    if plain:
        await store.create(plain)
    if len(plain) == len(items):
        return [None] * len(items)
    refusals = iter(await store.apply([_creation(new) for new in items if not _is_plain(new)]))
    return [None if _is_plain(new) else _unless_there(next(refusals)) for new in items]


def _permitted(draft: Draft | HoraeError, permit: Permit) -> Draft | HoraeError:
    """Return the draft, or the error that refuses it."""
    if isinstance(draft, HoraeError):
        return draft
    try:
        permit(draft)
    except HoraeError as exc:
        return exc
    return draft


def _is_plain(new: NewItem) -> bool:
    """Whether an item takes the fast path of the store: a one-shot without a key and a record, as most are."""
    return isinstance(new.item, Run) and new.item.one_shot and new.item.spec.key is None and new.record is None


def _creation(new: NewItem) -> Change:
    if isinstance(new.item, Firing):
        return create_job(new.item, new.record)
    if new.item.one_shot:
        return create_one_shot(new.item, new.record)
    return create_manual_run(new.item, new.record)


def _unless_there(refusal: Refusal | None) -> Refusal | None:
    """Ignore that an item exists under its own id: it was written before, and sent again."""
    return None if refusal is None or isinstance(refusal.guard, Absent) else refusal


def earlier_record(refusal: Refusal | None) -> IdempotencyRecord | None:
    """Return the record of the earlier request that an item was refused for, if that is the reason."""
    return refusal.found if refusal is not None and isinstance(refusal.found, IdempotencyRecord) else None


def _created(item: Item, refusal: Refusal | None) -> Job:
    """Return the job that was written; raises KeyTaken when another job holds its key."""
    job = _job_of(item)
    if refusal is not None and isinstance(refusal.found, KeyHolder):
        raise KeyTaken(refusal.found.key, f"job_{refusal.found.job_id}")
    return job


def _outcome(item: Item, ask: Ask | None, refusal: Refusal | None) -> JobId | HoraeError:
    """Return the id of the job that an item was written as, now or before, or the error."""
    if refusal is None:
        return _id_of(item)
    try:
        record = earlier_record(refusal)
        if record is None or ask is None:
            return _created(item, refusal).id
        return JobId(answer_of(record, ask))
    except HoraeError as exc:
        return exc


def _raise_if_down(outcomes: Sequence[object]) -> None:
    """Raise Unavailable when nothing was written, so that the whole request can be retried."""
    down = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
    if outcomes and len(down) == len(outcomes):
        raise down[0]


def _job_of(item: Item) -> Job:
    return fired_job(item) if isinstance(item, Firing) else job_of(item)


def _id_of(item: Item) -> JobId:
    return item.job.id if isinstance(item, Firing) else item.job_id
