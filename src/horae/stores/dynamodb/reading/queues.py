"""How much waits in queues, how late runs started, and what comes due soon: by bounded looks at hints and journals."""

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.model import JobStatus, State
from horae.core.records import QueueSettings
from horae.ports.reader import QueueDepth
from horae.stores.common.listing import EARLIEST
from horae.stores.dynamodb.database import Range, cut
from horae.stores.dynamodb.items import LATEST, job_of_item, stamp
from horae.stores.dynamodb.journals import ENDED_PARTS, Ended, ended_of, ended_partition
from horae.stores.dynamodb.lines import DIR, HELD_LONG, PARKED, PAUSED, PLAN, Directory, Line, Lines
from horae.stores.dynamodb.reading.merge import merged
from horae.stores.dynamodb.reading.rows import RowReader
from horae.stores.dynamodb.reading.waiting import (
    LANES_AT_ONCE,
    LEAST_LOOK,
    MAX_LOOK,
    ROWS_AT_ONCE,
    Outline,
    WaitingRows,
    after,
)

MAX_DEPTH = 10_000  # how far the runs of a queue are counted
ROWS_COUNTED = 1_000  # runs of a lane that are looked at; of the hints behind them the same part is taken to wait
MOST_EMPTY = 200  # hints after now, without a live run, after which a lane counts as empty
MAX_ENDED = 10_000  # ended runs that one call looks at
LATELY = 1_000  # runs of a queue that its lateness is taken from
LATE_MARGIN = timedelta(minutes=1)  # by a clock that was set back, a run may end before it is due

_LIVE = frozenset({State.SCHEDULED, State.RETRYING, State.CLAIMED, State.RUNNING})


@dataclass(slots=True)
class _Depth:
    """What was found of a queue."""

    waiting: int = 0
    oldest: datetime | None = None
    running: int = 0
    is_live: bool = False

    def add(self, run: Outline, now: datetime) -> None:
        if run.state not in _LIVE:
            return
        self.is_live = True
        self.running += run.state is State.RUNNING
        if not run.is_paused and run.state in (State.SCHEDULED, State.CLAIMED) and run.due_at <= now:
            self.waiting += 1
            self.oldest = run.due_at if self.oldest is None else min(self.oldest, run.due_at)


class QueueDepths:
    """Answers questions about queues."""

    def __init__(self, rows: RowReader, lines: Lines, waiting: WaitingRows) -> None:
        self._rows = rows
        self._lines = lines
        self._waiting = waiting

    async def depths(
        self, *, now: datetime, owner: str | None, queue: str | None, after_name: str, limit: int
    ) -> list[QueueDepth]:
        """Return the first queues after a name; see `Reader.queues`."""
        directory = await self._lines.directory()
        found: defaultdict[str, _Depth] = defaultdict(_Depth)
        counted: set[str] = set()
        for line in (PARKED, PAUSED, HELD_LONG):
            for run in await self._waiting.aside(line):
                if owner in (None, run.owner) and run.id not in counted:
                    counted.add(run.id)
                    found[run.queue].add(run, now)
        lanes: defaultdict[str, list[Line]] = defaultdict(list)
        for each in directory.lanes:
            if each.lane is not None and owner in (None, each.lane.owner):
                lanes[each.lane.queue].append(each)
        if owner is None:
            for name, said in directory.settings.items():
                if said != QueueSettings(queue=name):
                    found[name].is_live = True
        names = sorted(name for name in {*found, *lanes} if name > after_name and queue in (None, name))
        look = max(MAX_LOOK // max(sum(len(lanes[name]) for name in names), 1), LEAST_LOOK)
        answer: list[QueueDepth] = []
        for some in cut(names, LANES_AT_ONCE):
            depths = await asyncio.gather(
                *(self._add_lanes(found[name], lanes[name], now, counted, look) for name in some)
            )
            answer += [_told(name, depth, directory) for name, depth in zip(some, depths, strict=True) if depth.is_live]
            if len(answer) >= limit:
                break
        return answer[:limit]

    async def _add_lanes(
        self, depth: _Depth, lanes: Sequence[Line], now: datetime, counted: set[str], look: int
    ) -> _Depth:
        for line in lanes:
            await self._add_lane(depth, line, now, counted, min(look, ROWS_COUNTED))
        return depth

    async def _add_lane(self, depth: _Depth, line: Line, now: datetime, counted: set[str], look: int) -> None:
        assert line.lane is not None
        looked, before = 0, depth.waiting
        async for runs in self._waiting.of_lane(line, line.low, stamp(now), look=look):
            looked += len(runs)
            for run in runs:
                if run.id not in counted and (run.queue, run.owner) == (line.lane.queue, line.lane.owner):
                    counted.add(run.id)
                    depth.add(run, now)
        if looked >= look and depth.waiting > before:
            hints = await self._waiting.count_after(line, line.low, stamp(now), limit=MAX_DEPTH)
            depth.waiting += max(hints - looked, 0) * (depth.waiting - before) // looked
        if not depth.is_live:
            depth.is_live = await self._has_more(line, now)

    async def _has_more(self, line: Line, now: datetime) -> bool:
        """Whether anything of a lane is alive that wakes later."""
        assert line.lane is not None
        place = line.lane.queue, line.lane.owner
        async for runs in self._waiting.of_lane(line, after(now), LATEST, look=MOST_EMPTY):
            if any(run.state in _LIVE and (run.queue, run.owner) == place for run in runs):
                return True
        return False

    # --- what is to come

    async def due_soon(self, *, now: datetime, within: timedelta) -> Mapping[str, int]:
        """Count what comes due by queue; see `Reader.due_soon`."""
        until = now + within
        directory = await self._lines.directory()
        lanes = [line for line in directory.lanes if line.lane is not None and line.next <= stamp(until)]
        look = min(max(MAX_LOOK // max(len(lanes), 1), LEAST_LOOK), ROWS_COUNTED)
        counts: Counter[str] = Counter()
        for some in cut(lanes, LANES_AT_ONCE):
            for line, count in zip(
                some, await asyncio.gather(*(self._soon_in(line, now, until, look) for line in some)), strict=True
            ):
                assert line.lane is not None
                counts[line.lane.queue] += count
        counts.update(await self._planned_soon(now, until))
        return {queue: counts[queue] for queue in sorted(counts) if counts[queue]}

    async def _soon_in(self, line: Line, now: datetime, until: datetime, look: int) -> int:
        looked = count = 0
        async for runs in self._waiting.of_lane(line, after(now), stamp(until), look=look):
            looked += len(runs)
            count += sum(
                run.waits_in_lane and run.state is State.SCHEDULED and now < run.due_at <= until for run in runs
            )
        if looked >= look:
            hints = await self._waiting.count_after(line, after(now), stamp(until), limit=MAX_DEPTH)
            count += max(hints - looked, 0) * count // looked
        return count

    async def _planned_soon(self, now: datetime, until: datetime) -> Counter[str]:
        """Count the next slots of jobs that planners will read by then."""
        counts: Counter[str] = Counter()
        item = await self._rows.db.get(self._rows.db.names.meta, {"pk": {"S": DIR}, "sk": {"S": f"l#{PLAN}"}})
        if item is None:
            return counts
        line = Line(PLAN, None, int(item["n"]["N"]), item["low"]["S"], item["next"]["S"])
        hints = await self._lines.read(line, line.low, stamp(until), limit=MAX_DEPTH)
        jobs = (await self._rows.jobs({hint.ident for hint in hints if len(hint.ident) == 32})).values()
        for job in map(job_of_item, jobs):
            if job.status is JobStatus.SCHEDULED and job.next_fire_at is not None and now < job.next_fire_at <= until:
                counts[job.spec.queue] += job.plan_at is not None and job.plan_at <= until
        return counts

    # --- how late

    async def lateness(
        self, *, since: datetime, owner: str | None, after_name: str, until_name: str | None
    ) -> Mapping[str, timedelta]:
        """Return the lateness of queues; see `Reader.queue_lateness`."""
        latest: defaultdict[str, list[Ended]] = defaultdict(list)
        looked = 0
        ranges = [
            Range(
                table=self._rows.db.names.meta,
                pk=("pk", ended_partition(part)),
                sk="sk",
                low=stamp(max(since, EARLIEST + LATE_MARGIN) - LATE_MARGIN),
                forward=False,
            )
            for part in range(ENDED_PARTS)
        ]
        seen: set[str] = set()
        async for item in merged(self._rows.db, ranges, expect=ROWS_AT_ONCE):
            for run in ended_of(item):
                looked += 1
                in_range = run.queue > after_name and (until_name is None or run.queue <= until_name)
                if run.late is None or run.due_at <= since or not in_range or owner not in (None, run.owner):
                    continue
                if run.run_id not in seen:
                    seen.add(run.run_id)
                    latest[run.queue].append(run)
            if looked >= MAX_ENDED:
                break
        return {queue: _percentile(found) for queue, found in sorted(latest.items())}


def _told(name: str, depth: _Depth, directory: Directory) -> QueueDepth:
    said = directory.settings.get(name) or QueueSettings(queue=name)
    return QueueDepth(
        queue=name,
        depth=min(depth.waiting, MAX_DEPTH),
        oldest_due_at=depth.oldest,
        running=depth.running,
        paused=said.paused,
        concurrency=said.concurrency,
    )


def _percentile(found: Sequence[Ended]) -> timedelta:
    """The 99th percentile of the latest: of a hundred the last but one."""
    late = [run.late for run in heapq.nlargest(LATELY, found, key=lambda run: run.due_at) if run.late is not None]
    late.sort()
    return late[-(-99 * len(late) // 100) - 1]  # rounded up
