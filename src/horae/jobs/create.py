"""Creating jobs, one by one or many at once, and runs outside of their schedule."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from horae.batcher import Batcher
from horae.core.changes import JobNotCancelled, Refusal
from horae.core.decisions.firing import Firing
from horae.core.decisions.new_runs import manual_run
from horae.core.drafts import Draft
from horae.core.errors import HoraeError, KeyTaken, Unavailable
from horae.core.ids import Ids, NewId
from horae.core.job_rules import fired, job_of
from horae.core.model import Job, JobId, JobStatus, Run
from horae.core.records import IdempotencyRecord
from horae.core.values import replace
from horae.jobs.idempotency import Ask, Idempotency, Issue, answer_of
from horae.jobs.new_items import NewItem, earlier_record, other_holder, write_new
from horae.jobs.optimistic import find, over, refuse_over
from horae.jobs.params import Parameters
from horae.jobs.prepare import Item, Preparation
from horae.ports.clock import Clock
from horae.ports.store import Store

BATCH = 500  # jobs of one request that are written in one go
SLICE = 100  # jobs that are prepared before other requests get their turn
TURN = 8  # ids that are made at a time for jobs that come one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of the event loop: the jobs that it brings share their time, so that a store can write them as one."""

    at: datetime
    new_id: NewId


class Creating:
    """Writes new jobs; those that are asked for at the same time are written together."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        preparation: Preparation,
        parameters: Parameters,
        idempotency: Idempotency,
        ids: Ids,
    ) -> None:
        self._store = store
        self._clock = clock
        self._preparation = preparation
        self._parameters = parameters
        self._idempotency = idempotency
        self._ids = ids
        self._creates: Batcher[NewItem, Refusal | None] = Batcher(lambda items: write_new(store, items))
        self._turn: Turn | None = None

    # --- one job

    async def create(self, draft: Draft, *, owner: str, by: str) -> Job:
        """Make one job durable; its first runs are planned with it."""
        item = await self.prepare(draft, owner, by)
        return _created(item, await self._creates.add(NewItem(item=item)))

    async def create_once(self, draft: Draft, *, owner: str, by: str, issue: Issue[Job]) -> Job | IdempotencyRecord:
        """Make one job durable together with its record, or answer the record of an earlier request."""
        item = await self.prepare(draft, owner, by)
        refusal = await self._creates.add(NewItem(item=item, record=await issue(_job_of(item))))
        return earlier_record(refusal) or _created(item, refusal)

    async def prepare(self, draft: Draft, owner: str, by: str) -> Item:
        """The rows of a new job; raises what is wrong with it."""
        turn = self._turn or self._begin_turn()
        return await self._preparation.item(draft, JobId(turn.new_id()), owner=owner, by=by, now=turn.at)

    def _begin_turn(self) -> Turn:
        self._turn = Turn(at=self._clock.now(), new_id=self._ids.batched(TURN))
        asyncio.get_running_loop().call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        self._turn = None

    async def write_if_free(self, item: Item) -> Job | None:
        """Make prepared rows durable; None when another job holds the key."""
        return _job_of(item) if await self._creates.add(NewItem(item=item)) is None else None

    # --- many jobs

    async def create_many(
        self, drafts: Sequence[Draft | HoraeError], *, owner: str, by: str, asks: Sequence[Ask | None] | None = None
    ) -> list[JobId | HoraeError]:
        """Create each draft or tell why not; drafts that are errors already are passed on.

        With `asks`, a draft whose own request was met before is answered the id that it got then.
        """
        outcomes: list[JobId | HoraeError] = []
        asks = [None] * len(drafts) if asks is None else asks
        items: list[Item | HoraeError] = []
        since = self._preparation.reads
        for start in range(0, len(drafts) + BATCH, BATCH):  # while some are written the next are prepared
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
            items += await self._prepare_slice(drafts[start : start + SLICE], owner, by, since)
            await asyncio.sleep(0)
        return items

    async def _prepare_slice(
        self, drafts: Sequence[Draft | HoraeError], owner: str, by: str, since: int
    ) -> list[Item | HoraeError]:
        now, ids = self._clock.now(), self._ids.many(len(drafts))
        items: list[Item | HoraeError] = []
        for draft, job_id in zip(drafts, ids, strict=True):
            if isinstance(draft, HoraeError):
                items.append(draft)
                continue
            try:
                item = await self._preparation.item(draft, JobId(job_id), owner=owner, by=by, now=now, since=since)
            except HoraeError as exc:
                items.append(exc)
            else:
                items.append(item)
        return items

    async def _write_all(
        self, items: Sequence[Item | HoraeError], asks: Sequence[Ask | None]
    ) -> list[JobId | HoraeError]:
        """What became of each item that is none of the errors."""
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
    ) -> Run | IdempotencyRecord:
        """Run the job once more at once, whatever its schedule says, also while it is paused or finished."""
        job = await find(self._store, job_id, owner=owner)
        if job.status is JobStatus.CANCELLED:
            refuse_over(job)
        run = replace(manual_run(job, None, now=self._clock.now(), new_id=self._ids), created_by=by)
        if params is not None:
            self._preparation.check_params(run.spec, params)
            kept, blob = await self._parameters.keep(params, run.id)
            run = replace(run, spec=replace(run.spec, params=kept, params_blob=blob))
        refusal = await self._creates.add(NewItem(item=run, record=None if issue is None else await issue(run)))
        if refusal is not None and isinstance(refusal.guard, JobNotCancelled):
            raise over(job_id, JobStatus.CANCELLED)
        return earlier_record(refusal) or run


def _created(item: Item, refusal: Refusal | None) -> Job:
    """The job that was written; raises KeyTaken when another one holds its key."""
    job = _job_of(item)
    if (holder := other_holder(refusal)) is not None:
        raise KeyTaken(job.spec.key or "", f"job_{holder}")
    return job


def _outcome(item: Item, ask: Ask | None, refusal: Refusal | None) -> JobId | HoraeError:
    """The id of the job that was written for an item, now or before, or why none was."""
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
    """When nothing at all was written the whole request can be repeated."""
    down = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
    if outcomes and len(down) == len(outcomes):
        raise down[0]


def _job_of(item: Item) -> Job:
    return fired(item) if isinstance(item, Firing) else job_of(item)


def _id_of(item: Item) -> JobId:
    return item.job.id if isinstance(item, Firing) else item.job_id
