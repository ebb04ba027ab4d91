"""Many jobs that run once and differ only in their parameters: what they share is looked at and made once."""

import dataclasses
from collections.abc import Sequence

from horae.core.errors import Invalid, Unavailable
from horae.core.model import JobId, Run
from horae.core.plan import NewId
from horae.core.values import replace
from horae.services.creating import Creating
from horae.services.drafts import MAX_INLINE_PARAMS, Draft
from horae.services.parameters import Parameters
from horae.services.receipts import Ask, Receipts, answer_of
from horae.store import Receipt, Receipted, Store

BATCH = 2000  # jobs that are written in one go
SMALL = MAX_INLINE_PARAMS // 4  # characters that surely fit beside the job, whatever they are


class Interrupted(Unavailable):
    """The store went away in the middle: some jobs were written, the others were not or may not have been."""

    def __init__(self, written: Sequence[JobId], wanted: int, why: Unavailable) -> None:
        super().__init__(f"{len(written)} of {wanted} jobs are known to be written, then the store was away: {why}")
        self.written = [f"job_{job_id}" for job_id in written]


class Alike:
    """Writes jobs of one kind as fast as the store takes them. Their parameters were checked by whoever gives them."""

    def __init__(
        self, *, store: Store, creating: Creating, parameters: Parameters, receipts: Receipts, new_id: NewId
    ) -> None:
        self._store = store
        self._creating = creating
        self._parameters = parameters
        self._receipts = receipts
        self._new_id = new_id

    async def create(
        self, draft: Draft, params: Sequence[str], *, owner: str, by: str, ask: Ask | None = None
    ) -> list[JobId]:
        """A job for each of the parameters, or the one that an earlier request made; raises Interrupted."""
        if draft.key is not None and len(params) > 1:
            raise Invalid("a key belongs to one job; submit these one by one, or without a key", pointer="/key")
        written: list[JobId] = []
        for start in range(0, len(params), BATCH):
            runs = await self.prepare(draft, params[start : start + BATCH], owner=owner, by=by)
            asks = None if ask is None else [ask.item(start + place) for place in range(len(runs))]
            try:
                written += await self._write(runs, asks)
            except Unavailable as exc:
                raise Interrupted(written, len(params), exc) from exc
        return written

    async def prepare(self, draft: Draft, params: Sequence[str], *, owner: str, by: str) -> list[Run]:
        """The rows of these jobs, not yet written."""
        if not params:
            return []
        model = await self._creating.prepare(dataclasses.replace(draft, params=params[0]), owner, by)
        if not isinstance(model, Run):
            raise Invalid("jobs that are created in bulk run once", pointer="/schedule")
        runs = [model]
        for text in params[1:]:
            job_id, kept, blob = self._new_id(), text, None
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
        written = await self._store.create(
            [Receipted(item=run, receipt=self._receipts.of(ask, run.job_id)) for run, ask in pairs]
        )
        return [
            JobId(answer_of(answer, ask)) if isinstance(answer, Receipt) else answer
            for answer, ask in zip(written, asks, strict=True)
        ]
