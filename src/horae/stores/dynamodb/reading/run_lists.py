"""Lists of runs: by due time, latest first, from the index that fits a filter; rows are read again by their ids."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Run
from horae.ports.reader import Listing, RunFilter
from horae.stores.common.listing import (
    Ident,
    Micros,
    Position,
    decode_cursor,
    due_range,
    micros_of,
    page,
    share,
    time_of,
)
from horae.stores.dynamodb.database import Range
from horae.stores.dynamodb.items import Item, live_of, run_of, stamp, time_of_stamp
from horae.stores.dynamodb.reading.filters import run_fits
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader, before_time, from_time

ROWS_AT_ONCE = 100  # as many as one BatchGetItem takes

Held = Callable[[], Awaitable[Sequence[Item]]]  # the rows of what nodes hold, or are asked to stop

Complete = Callable[[Sequence[Item]], Awaitable[None]]  # writes runs that jobs have fired and that have no rows yet


class RunLists:
    """Answers lists of runs."""

    def __init__(self, rows: RowReader, *, held: Held, complete: Complete) -> None:
        self._rows = rows
        self._held = held
        self._complete = complete

    async def page(self, which: RunFilter, *, cursor: str | None, limit: int, look: int | None) -> Listing[Run]:
        """Return a page; see `Reader.list_runs`."""
        start, end = due_range(which)
        low, high = from_time(start), before_time(end)
        after: str | None = None  # the last that earlier pages had
        if cursor is not None:
            micros, ident = decode_cursor(cursor, Micros, Ident)
            after = stamp(time_of(micros)) + ident
            high = min(high, after)
        few, ranges = await self._sources(which, low, high, begun=cursor is not None)
        found = [run for run in few if run_fits(which, run) and (after is None or _place(run) < after)]
        edges: list[Position] = []
        if ranges:
            bound = share(look, 1 + bool(few), limit + 1)
            streamed, edge = await self._search(which, ranges, after, limit + 1, bound)
            found += streamed
            edges += [] if edge is None else [edge]
        cut = page(found, limit, lambda run: (micros_of(run.due_at), run.id), edges)
        return Listing(
            items=list(cut.rows),
            cursor=cut.cursor,
            searched_to=None if cut.edge is None else time_of(int(cut.edge[0])),
        )

    async def _sources(self, which: RunFilter, low: str, high: str, *, begun: bool) -> tuple[list[Run], list[Range]]:
        """Return what is found without an index, and the ranges that are searched for the rest; each run once."""
        states = which.states
        if states is not None and not states:
            return [], []
        if which.dead_letters:
            parts = await self._rows.sub_shards(await self._owner_of(which), begun=begun)
            return [], self._rows.by_due("dead", parts, low, high)
        if which.stopping or (states is not None and states <= HELD and which.job_id is None):
            return [run_of(item) for item in await self._held()], []
        if which.job_id is not None:
            return await self._of_job(which, low, high)
        parts = await self._rows.sub_shards(which.owner, begun=begun)
        return [], self._rows.by_due("by_owner", parts, low, high)

    async def _of_job(self, which: RunFilter, low: str, high: str) -> tuple[list[Run], list[Range]]:
        assert which.job_id is not None
        shot = await self._rows.runs([which.job_id])
        few = [run_of(item) for item in shot.values() if "sch" in item]
        if not few and which.states is not None and not which.states & FINAL:
            job = (await self._rows.jobs([which.job_id])).get(which.job_id)
            if job is not None:  # its live runs may stand behind very many that have ended
                await self._complete([job])
                live = await self._rows.runs(live_of(job))
                return [run_of(item) for item in live.values()], []
        return few, self._rows.by_due("by_job", [which.job_id], low, high)

    async def _owner_of(self, which: RunFilter) -> str | None:
        """Return the owner of the dead letters that are asked for; those of a job are among its owner's."""
        if which.owner is not None or which.job_id is None:
            return which.owner
        job = {**await self._rows.runs([which.job_id]), **await self._rows.jobs([which.job_id])}.get(which.job_id)
        return "" if job is None else str(job["o"]["S"])

    async def _search(
        self, which: RunFilter, ranges: Sequence[Range], after: str | None, limit: int, look: int
    ) -> tuple[list[Run], Position | None]:
        """Return the first runs of ranges that fit, and the edge if the look ended at its bound."""
        found: list[Run] = []
        looked = 0
        async for places in self._chunks(ranges, after, min(look, limit)):
            taken = places[: look - looked]
            looked += len(taken)
            found += [run for run in await self._read(taken) if run_fits(which, run)]
            if len(found) >= limit:
                return found, None
            if looked >= look:
                return found, (micros_of(time_of_stamp(taken[-1])), taken[-1][20:])
        return found, None

    async def _chunks(self, ranges: Sequence[Range], after: str | None, expect: int) -> AsyncIterator[list[str]]:
        """Yield places in an index, some at a time: as many as are probably wanted, and then as many as fit."""
        places: list[str] = []
        size = min(expect, ROWS_AT_ONCE)
        async for item in merged(self._rows.db, ranges, expect=expect):
            if (place := item[str(ranges[0].sk)]["S"]) != after:
                places.append(place)
            if len(places) >= size:
                yield places
                places, size = [], ROWS_AT_ONCE
        if places:
            yield places

    async def _read(self, places: Sequence[str]) -> list[Run]:
        """Return the runs that are still at these places; a one-shot may have got another due time meanwhile."""
        items = await self._rows.runs(place[20:] for place in places)
        wanted = set(places)
        return [run_of(item) for item in items.values() if item["due"]["S"] in wanted]


def _place(run: Run) -> str:
    return stamp(run.due_at) + run.id
