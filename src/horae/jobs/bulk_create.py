"""Creates many one-shot jobs that differ only in their parameters, and checks what they share once."""

import asyncio
from collections import deque
from collections.abc import Sequence

from horae.core.decisions.firing import Firing
from horae.core.drafts import MAX_INLINE_PARAMS, Draft
from horae.core.errors import Invalid, Unavailable
from horae.core.ids import Ids
from horae.core.model import JobId, Run
from horae.core.values import replace
from horae.jobs.create import Creator, NewItem, earlier_record, write_new
from horae.jobs.idempotency import Ask, Idempotency, answer_of
from horae.jobs.params import Parameters
from horae.ports.store import Store

BATCH = 2000  # jobs per write
AT_ONCE = 2  # batches in progress: while the store writes one, the next is prepared
SMALL = MAX_INLINE_PARAMS // 4  # characters that never need a blob, since a character has at most four bytes


class Interrupted(Unavailable):
    """The store became unavailable in the middle: some jobs were written, others may have been or not."""

    def __init__(self, written: Sequence[JobId], wanted: int, why: Unavailable) -> None:
        super().__init__(f"{len(written)} of {wanted} jobs are known to be written, then the store was away: {why}")
        self.written = [f"job_{job_id}" for job_id in written]


class BulkCreator:
    """Writes similar jobs as fast as the store accepts them; callers have checked their parameters."""

    def __init__(
        self, *, store: Store, creator: Creator, parameters: Parameters, idempotency: Idempotency, ids: Ids
    ) -> None:
        self._store = store
        self._creator = creator
        self._parameters = parameters
        self._idempotency = idempotency
        self._ids = ids

    async def create(
        self, draft: Draft, params: Sequence[str], *, owner: str, by: str, ask: Ask | None = None
    ) -> list[JobId]:
        """Create a job for each of the parameters, unless an earlier request did; raises Interrupted."""
        if draft.key is not None and len(params) > 1:
            raise Invalid("a key belongs to one job; submit these one by one, or without a key", pointer="/key")
        left = deque(range(0, len(params), BATCH))
        written: dict[int, list[JobId]] = {}

        async def write() -> None:
            while left:
                start = left.popleft()
                try:
                    runs = await self.prepare(draft, params[start : start + BATCH], owner=owner, by=by)
                    asks = None if ask is None else [ask.item(start + place) for place in range(len(runs))]
                    written[start] = await self._write(runs, asks)
                except BaseException:
                    left.clear()
                    raise

        at_once = 1 if draft.ordering_key else AT_ONCE  # jobs that run in order are written in order
        ends = await asyncio.gather(*(write() for _ in range(at_once)), return_exceptions=True)
        ids = [job_id for start in sorted(written) for job_id in written[start]]
        for error in ends:
            if isinstance(error, Unavailable):
                raise Interrupted(ids, len(params), error) from error
            if error is not None:
                raise error
        return ids

    async def prepare(self, draft: Draft, params: Sequence[str], *, owner: str, by: str) -> list[Run]:
        """Check the draft and return the rows of the jobs."""
        if not params:
            return []
        model = await self._creator.prepare(replace(draft, params=params[0]), owner, by)
        if isinstance(model, Firing):
            raise Invalid("jobs that are created in bulk run once", pointer="/schedule")
        runs = [model]
        for text, job_id in zip(params[1:], self._ids.many(len(params) - 1), strict=True):
            kept, blob = text, None
            if len(text) > SMALL:
                kept, blob = await self._parameters.keep(text, job_id)
            spec = replace(model.spec, params=kept, params_blob=blob)
            runs.append(replace(model, id=job_id, job_id=job_id, spec=spec))
        return runs

    async def _write(self, runs: Sequence[Run], asks: Sequence[Ask] | None) -> list[JobId]:
        if asks is None:
            await self._store.create(runs)
            return [run.job_id for run in runs]
        pairs = zip(runs, asks, strict=True)
        items = [NewItem(item=run, record=self._idempotency.of(ask, run.job_id)) for run, ask in pairs]
        refusals = await write_new(self._store, items)
        return [
            run.job_id if (record := earlier_record(refusal)) is None else JobId(answer_of(record, ask))
            for run, ask, refusal in zip(runs, asks, refusals, strict=True)
        ]
