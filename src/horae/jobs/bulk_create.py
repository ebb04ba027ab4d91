"""Many jobs that run once and differ only in their parameters: what they share is looked at and made once."""

import asyncio
from collections import deque
from collections.abc import Sequence

from horae.core.decisions.firing import Firing
from horae.core.drafts import MAX_INLINE_PARAMS, Draft
from horae.core.errors import Invalid, Unavailable
from horae.core.ids import Ids
from horae.core.model import JobId, Run
from horae.core.values import replace
from horae.jobs.create import Creating
from horae.jobs.idempotency import Ask, Idempotency, answer_of
from horae.jobs.new_items import NewItem, earlier_record, write_new
from horae.jobs.params import Parameters
from horae.ports.store import Store

BATCH = 2000  # jobs that are written in one go
AT_ONCE = 2  # batches on their way: while the store works on one, the next is made ready
SMALL = MAX_INLINE_PARAMS // 4  # characters that surely fit beside the job, whatever they are


class Interrupted(Unavailable):
    """The store went away in the middle: some jobs were written, the others were not or may not have been."""

    def __init__(self, written: Sequence[JobId], wanted: int, why: Unavailable) -> None:
        super().__init__(f"{len(written)} of {wanted} jobs are known to be written, then the store was away: {why}")
        self.written = [f"job_{job_id}" for job_id in written]


class Alike:
    """Writes jobs of one kind as fast as the store takes them. Their parameters were checked by whoever gives them."""

    def __init__(
        self, *, store: Store, creating: Creating, parameters: Parameters, idempotency: Idempotency, ids: Ids
    ) -> None:
        self._store = store
        self._creating = creating
        self._parameters = parameters
        self._idempotency = idempotency
        self._ids = ids

    async def create(
        self, draft: Draft, params: Sequence[str], *, owner: str, by: str, ask: Ask | None = None
    ) -> list[JobId]:
        """A job for each of the parameters, or the one that an earlier request made; raises Interrupted."""
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

        at_once = 1 if draft.ordering_key else AT_ONCE  # what is to run in order becomes known in order
        ends = await asyncio.gather(*(write() for _ in range(at_once)), return_exceptions=True)
        ids = [job_id for start in sorted(written) for job_id in written[start]]
        for error in ends:
            if isinstance(error, Unavailable):
                raise Interrupted(ids, len(params), error) from error
            if error is not None:
                raise error
        return ids

    async def prepare(self, draft: Draft, params: Sequence[str], *, owner: str, by: str) -> list[Run]:
        """The rows of these jobs, not yet written."""
        if not params:
            return []
        model = await self._creating.prepare(replace(draft, params=params[0]), owner, by)
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
