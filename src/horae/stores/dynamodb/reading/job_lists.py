"""Lists of jobs: newest first, recurring ones by an index and one-shots by the journal of what was made."""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from horae.core.ids import born_at
from horae.core.job_rules import job_of
from horae.core.model import Job
from horae.ports.reader import JobFilter, KnownId, Listing
from horae.stores.common.listing import LATEST, Ident, Position, decode_cursor, page, share
from horae.stores.dynamodb.items import job_of_item, run_of, unpacked
from horae.stores.dynamodb.reading.filters import job_fits, last_run_fits
from horae.stores.dynamodb.reading.last_runs import LastRuns
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader

ROWS_AT_ONCE = 100  # as many as one BatchGetItem takes
LOWEST, HIGHEST = "0" * 32, "f" * 32
COSTS = 4  # rows that the look-up of the last run of a job counts as


Fitting = Callable[[Sequence[str]], Awaitable[list[Job]]]  # of jobs with these ids, those that are asked for


class JobLists:
    """Answers lists of jobs."""

    def __init__(self, rows: RowReader, last_runs: LastRuns) -> None:
        self._rows = rows
        self._last_runs = last_runs

    async def page(self, which: JobFilter, *, cursor: str | None, limit: int, look: int | None) -> Listing[Job]:
        """Return a page; see `Reader.list_jobs`."""
        before = None if cursor is None else decode_cursor(cursor, Ident)[0]
        parts = await self._rows.sub_shards(which.owner, begun=cursor is not None)
        bound = share(look, 2, limit + 1)
        costly = max(bound // COSTS, limit + 1) if which.last_run_states is not None else bound
        streams = [
            await self._search(
                self._recurring(parts, before, limit), self._fitting_recurring(which), limit + 1, costly
            ),
            await self._search(self._one_shots(parts, before, limit), self._fitting_one_shots(which), limit + 1, bound),
        ]
        found = [job for jobs, _ in streams for job in jobs]
        edges = [edge for _, edge in streams if edge is not None]
        cut = page(found, limit, lambda job: (job.id,), edges)
        return Listing(
            items=list(cut.rows),
            cursor=cut.cursor,
            searched_to=None if cut.edge is None else born_at(str(cut.edge[0])),
        )

    async def _search(
        self,
        idents: AsyncIterator[str],
        fitting: Fitting,
        limit: int,
        look: int,
    ) -> tuple[list[Job], Position | None]:
        """Return the first jobs of a stream of ids that fit, and the edge if the look ended at its bound."""
        found: list[Job] = []
        looked = 0
        async for chunk in chunks(idents, min(limit, look)):
            taken = chunk[: look - looked]
            looked += len(taken)
            found += await fitting(taken)
            if len(found) >= limit:
                return found, None
            if looked >= look:
                return found, (taken[-1],)
        return found, None

    async def _recurring(self, parts: Sequence[str], before: str | None, limit: int) -> AsyncIterator[str]:
        ranges = self._rows.of_jobs(parts, LOWEST, before or HIGHEST)
        async for item in merged(self._rows.db, ranges, expect=limit + 1):
            if (ident := item["job"]["S"]) != before:
                yield ident

    async def _one_shots(self, parts: Sequence[str], before: str | None, limit: int) -> AsyncIterator[str]:
        async for ident in made(self._rows, parts, LOWEST, before or HIGHEST, ("ids",), expect=limit + 1):
            if ident != before:
                yield ident

    def _fitting_recurring(self, which: JobFilter) -> Fitting:
        async def fitting(idents: Sequence[str]) -> list[Job]:
            items = await self._rows.jobs(idents)
            jobs = [job for item in items.values() if job_fits(which, job := job_of_item(item))]
            if which.last_run_states is None or not jobs:
                return jobs
            last = await self._last_runs.of_recurring([job.id for job in jobs], which.now or LATEST)
            return [job for job in jobs if last_run_fits(which, last.get(job.id))]

        return fitting

    def _fitting_one_shots(self, which: JobFilter) -> Fitting:
        async def fitting(idents: Sequence[str]) -> list[Job]:
            items = await self._rows.runs(idents)
            jobs = [job_of(run_of(item)) for item in items.values() if "sch" in item]
            return [job for job in jobs if job_fits(which, job)]

        return fitting

    async def ids(self, first: str, last: str, limit: int) -> list[KnownId]:
        """Return the ids of jobs and runs within a range, newest first."""
        parts = await self._rows.sub_shards(None)
        found: list[KnownId] = []
        async for chunk in chunks(self._recurring_within(parts, first, last, limit), limit):
            items = await self._rows.jobs(chunk)
            found += [KnownId(id=ident, owner=item["o"]["S"], job=True, run=False) for ident, item in items.items()]
            if len(found) >= limit:
                break
        runs: list[KnownId] = []
        async for chunk in chunks(made(self._rows, parts, first, last, ("ids", "rids"), expect=limit), limit):
            items = await self._rows.runs(chunk)
            runs += [
                KnownId(id=ident, owner=item["o"]["S"], job="sch" in item, run=True) for ident, item in items.items()
            ]
            if len(runs) >= limit:
                break
        return heapq.nlargest(limit, found + runs, key=lambda known: known.id)

    async def _recurring_within(self, parts: Sequence[str], first: str, last: str, limit: int) -> AsyncIterator[str]:
        async for item in merged(self._rows.db, self._rows.of_jobs(parts, first, last), expect=limit):
            yield item["job"]["S"]


async def made(
    rows: RowReader, parts: Sequence[str], low: str, high: str, names: Sequence[str], *, expect: int
) -> AsyncIterator[str]:
    """Yield ids of the journal of what was made, from `high` down to `low`, both included.

    An entry holds ids up to its own key, so what is above the key of the last entry that was read is complete.
    """
    heap: list[tuple[int, str]] = []  # of negative numbers: the greatest id comes first

    def ready(down_to: str) -> list[str]:
        taken = []
        while heap and heap[0][1] > down_to:
            taken.append(heapq.heappop(heap)[1])
        return taken

    seen = ""
    async for entry in merged(rows.db, rows.made(parts, low, high), expect=expect):
        for ident in ready(entry["sk"]["S"]):
            if ident != seen:
                yield ident
            seen = ident
        for name in names:
            for ident in unpacked(entry[name]) if name in entry else ():
                if low <= ident <= high:
                    heapq.heappush(heap, (-int(ident, 16), ident))
    for ident in ready(""):
        if ident != seen:
            yield ident
        seen = ident


async def chunks(idents: AsyncIterator[str], first: int) -> AsyncIterator[list[str]]:
    """Yield ids, as many at first as are probably wanted, and then as many as one read takes."""
    taken: list[str] = []
    size = min(first, ROWS_AT_ONCE)
    async for ident in idents:
        taken.append(ident)
        if len(taken) >= size:
            yield taken
            taken, size = [], ROWS_AT_ONCE
    if taken:
        yield taken
