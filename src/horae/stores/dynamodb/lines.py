"""The directory of lanes, and the hints of what wakes in each: where claims, planners and upkeep look.

A creator writes to the directory only if it does not know that a lane is awake. It remembers that for LANE_MEMORY;
whoever puts a lane off waits longer than that between its announcement and the deed (see `upkeep`).
"""

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.aws_api.errors import ConditionFailed
from horae.core.decisions.fairness import Lane
from horae.core.model import JobId, Run, shard_of
from horae.core.records import QueueSettings
from horae.stores.dynamodb import times
from horae.stores.dynamodb.database import Database, PutItem, Range
from horae.stores.dynamodb.growth import Growth
from horae.stores.dynamodb.items import LATEST, Item, expiry, stamp, text, text_of, time_of_stamp
from horae.stores.dynamodb.sparing import SparingRead

DIR = "dir"
PLAN = "plan"  # the line of jobs and backfills that planners should look at
PARKED, PAUSED, HELD_LONG = "parked", "paused", "held"  # lines of what claims need not look at
HELD_FOR = 1.0  # seconds that a run is believed to be held; others may give it back meanwhile
MOST_HELD = 100_000  # that are remembered
LANE_MEMORY = 10.0  # seconds
HINT_LIFE = timedelta(days=7)  # after what it hints at; upkeep renews those of runs that wait for longer


@dataclass(slots=True)
class Line:
    """A line of hints, as its row in the directory says."""

    name: str
    lane: Lane | None  # None: the plan line
    shards: int
    low: str  # the stamp below which nothing waits or is held
    next: str  # the stamp before which nothing wakes
    closing: str | None = None  # since when it is about to be put off
    rising: str | None = None  # to where `low` is about to be raised
    learned_at: float = 0.0

    @property
    def next_at(self) -> datetime | None:
        """When its first hint wakes; None when it has none."""
        return None if self.next >= LATEST else time_of_stamp(self.next)


@dataclass(frozen=True, slots=True)
class Hint:
    """Something that wakes at a time."""

    at: str  # the stamp of the time, then the id
    task: str | None
    line: str  # with its shard
    job: str | None = None  # that fired the run, while this may still have to be written

    @property
    def ident(self) -> str:
        return self.at[20:]

    @property
    def wake_at(self) -> datetime:
        return time_of_stamp(self.at)

    @property
    def key(self) -> Item:
        return {"line": {"S": self.line}, "at": {"S": self.at}}


@dataclass(frozen=True, slots=True)
class Directory:
    """The lanes and the settings of queues, as one query shows them."""

    lanes: Sequence[Line]
    settings: Mapping[str, QueueSettings]


def lane_of(run: Run) -> Lane:
    """The lane of a run."""
    return Lane(run.spec.queue, run.spec.priority, run.owner)


def part_of(ident: str, parts: int) -> int:
    """The shard of a hint: that of planners, as far as the line has so many, so that each planner reads its own."""
    return shard_of(JobId(ident[:32])) % parts


def parts_of(shards: Collection[int], parts: int) -> list[int]:
    """The shards of a line that may have hints of some planner shards, also from when the line had fewer."""
    found, number = set[int](), 1
    while number <= parts:
        found.update(shard % number for shard in shards)
        number *= 2
    return sorted(found)


def lane_name(lane: Lane) -> str:
    """The name of the line of a lane; no two lanes share one."""
    return f"{len(lane.queue)}#{lane.queue}#{lane.priority}#{lane.owner}"


class Lines:
    """Reads and writes the directory and its hints."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[str, Line] = {}
        self._counts: Counter[str] = Counter()
        self._growth = Growth(db, _key)
        self._recent = SparingRead(self.directory)
        self._held: dict[tuple[str, str], float] = {}  # hints of runs that a node holds, and until when we believe it
        self._planned = LATEST  # the earliest plan hint that was written since planners last asked

    # --- the directory

    async def directory(self) -> Directory:
        """Return all lanes, and the settings of all queues."""
        lanes, settings = [], {}
        which = Range(table=self._db.names.meta, pk=("pk", DIR))
        for item in await self._db.items(which):
            if item["sk"]["S"].startswith("q#"):
                found = settings_of(item)
                settings[found.queue] = found
            elif "q" in item:
                lanes.append(_line(item))
        return Directory(lanes, settings)

    async def recent_directory(self) -> Directory:
        """Return the same, but to whoever asks very often as it was a moment ago."""
        return await self._recent.get()

    async def line(self, name: str, lane: Lane | None, wakes: str) -> Line:
        """Return a line that is awake for what wakes at a stamp; it is made or woken unless it is known to be."""
        known = self._known.get(name)
        if known is None or times.steady() - known.learned_at > LANE_MEMORY or not _is_awake(known, wakes):
            known = await self._wake(name, lane, wakes)
            self._known[name] = known
        return known

    async def _wake(self, name: str, lane: Lane | None, wakes: str) -> Line:
        learned_at = times.steady()
        key = _key(name)
        item = await self._db.get(self._db.names.meta, key)
        while item is None or not _is_awake(_line(item), wakes):
            item = await self._woken(key, item, lane, wakes)
        line = _line(item)
        line.learned_at = learned_at
        return line

    async def _woken(self, key: Item, item: Item | None, lane: Lane | None, wakes: str) -> Item | None:
        """Make a row of the directory, or wake it; returns what it is now."""
        values = {":wakes": text(wakes)}
        try:
            if item is None:
                values |= {":n": {"N": "1"}}
                expression, condition = "SET #n = :n, #low = :wakes, #next = :wakes", "attribute_not_exists(#pk)"
                if lane is not None:
                    expression += ", #q = :q, #pr = :pr, #o = :o"
                    values |= {":q": text(lane.queue), ":pr": {"N": str(lane.priority)}, ":o": text(lane.owner)}
            else:
                line = _line(item)
                lowest = {":low": text(min(line.low, wakes)), ":next": text(min(line.next, wakes))}
                values = lowest | {":old_low": text(line.low), ":old_next": text(line.next)}
                expression = "SET #low = :low, #next = :next REMOVE #closing, #rising"
                condition = "#low = :old_low AND #next = :old_next"
            return await self._db.update(self._db.names.meta, key, expression, values, ConditionExpression=condition)
        except ConditionFailed:
            return await self._db.get(self._db.names.meta, key)

    async def change(self, line: Line, after: Line) -> bool:
        """Write what upkeep found out about a line, unless it was woken meanwhile."""
        values = {":low": text(line.low), ":next": text(line.next)}
        conditions = ["#low = :low", "#next = :next"]
        sets, removes = ["#low = :new_low, #next = :new_next"], []
        values |= {":new_low": text(after.low), ":new_next": text(after.next)}
        for name in ("closing", "rising"):
            old, new = getattr(line, name), getattr(after, name)
            conditions.append(f"attribute_not_exists(#{name})" if old is None else f"#{name} = :{name}")
            values |= {} if old is None else {f":{name}": text(old)}
            if new is None:
                removes.append(f"#{name}")
            else:
                sets.append(f"#{name} = :new_{name}")
                values[f":new_{name}"] = text(new)
        expression = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
        condition = {"ConditionExpression": " AND ".join(conditions)}
        try:
            await self._db.update(self._db.names.meta, _key(line.name), expression, values, **condition)
        except ConditionFailed:
            return False
        self._known.pop(line.name, None)
        return True

    async def existing(self, name: str) -> Line | None:
        """Return a line as it is now, if it exists."""
        item = await self._db.get(self._db.names.meta, _key(name))
        return None if item is None else _line(item)

    # --- writing hints

    async def hints(self, runs: Iterable[Run]) -> list[PutItem]:
        """Return the hints of runs, after their lanes were woken; the caller writes them before the runs."""
        by_lane: defaultdict[Lane, list[Run]] = defaultdict(list)
        puts: list[PutItem] = []
        for run in runs:
            if run.paused:
                puts.append(self.aside(PAUSED, run))
            else:
                by_lane[lane_of(run)].append(run)
        lines = await asyncio.gather(*(self._awake(lane, some) for lane, some in by_lane.items()))
        for line, some in zip(lines, by_lane.values(), strict=True):
            self._counts[line.name] += len(some)
            puts += [self.hint(line, run.wake_at, run.id, run.spec.task, job=_job_of(run)) for run in some]
        await self._grow()
        return list({(put.item["line"]["S"], put.item["at"]["S"]): put for put in puts}.values())

    async def _awake(self, lane: Lane, runs: Sequence[Run]) -> Line:
        return await self.line(lane_name(lane), lane, stamp(min(run.wake_at for run in runs)))

    def take_planned(self) -> str:
        """Return the stamp of the earliest plan hint that was written since the last call."""
        planned, self._planned = self._planned, LATEST
        return planned

    def hint(self, line: Line, wake_at: datetime, ident: str, task: str | None, *, job: str | None = None) -> PutItem:
        """Return a hint of a line."""
        item = {
            "line": text(f"{line.name}#{part_of(ident, line.shards)}"),
            "at": text(stamp(wake_at) + ident),
            "ttl": expiry(max(wake_at, times.wall()) + HINT_LIFE),
        }
        if task is not None:
            item["t"] = text(task)
        if job is not None:
            item["j"] = text(job)
        self._held.pop((item["line"]["S"], item["at"]["S"]), None)
        return PutItem(self._db.names.due, item)

    def aside(self, line: str, run: Run) -> PutItem:
        """Return the hint of a run in one of the lines of what claims need not look at."""
        item = {"line": text(f"{line}#0"), "at": text(stamp(run.due_at) + run.id), "q": text(run.spec.queue)}
        item |= {"o": text(run.owner), "t": text(run.spec.task)}
        if run.gate is not None:
            item["g"] = text(run.gate)
        return PutItem(self._db.names.due, item)

    async def plan_hint(self, plan_at: datetime, ident: str) -> PutItem:
        """Return the hint of a job or backfill for planners, after their line was woken."""
        line = await self.line(PLAN, None, stamp(plan_at))
        self._planned = min(self._planned, stamp(plan_at))
        self._counts[line.name] += 1
        return self.hint(line, plan_at, ident, None)

    async def _grow(self) -> None:
        """Let lines have more shards in which very much is written, by this process and others together."""
        counts, self._counts = self._counts, Counter()
        for name, shards in (await self._growth.wrote(counts)).items():
            if (known := self._known.get(name)) is not None:
                known.shards = max(known.shards, shards)

    # --- reading hints

    async def read(
        self, line: Line, low: str, high: str = LATEST, *, limit: int, of: Collection[int] | None = None
    ) -> list[Hint]:
        """Return the first hints of a line from a stamp (or a whole key) up to another, in their order.

        With `of`, those of some planner shards are enough; others may be among them.
        """
        numbers = range(line.shards) if of is None else parts_of(of, line.shards)
        parts = await asyncio.gather(*(self._shard(line, number, low, high, limit) for number in numbers))
        return parts[0] if len(parts) == 1 else list(heapq.merge(*parts, key=lambda hint: hint.at))[:limit]

    async def _shard(self, line: Line, number: int, low: str, high: str, limit: int) -> list[Hint]:
        return await self.read_part(f"{line.name}#{number}", low, high, limit=limit)

    def is_held(self, hint: Hint) -> bool:
        """Whether a node held the run of a hint a moment ago: it need not be looked at again."""
        return self._held.get((hint.line, hint.at), 0.0) > times.steady()

    def note_held(self, hint: Hint) -> None:
        """Note that a node holds the run of a hint."""
        if len(self._held) >= MOST_HELD:
            self._held.clear()
        self._held[hint.line, hint.at] = times.steady() + HELD_FOR

    async def read_part(self, part: str, low: str = "", high: str = LATEST, *, limit: int) -> list[Hint]:
        """Return the first hints of one shard."""
        high = high if len(high) > 20 else f"{high}g"  # after every id with this stamp
        which = Range(
            table=self._db.names.due, pk=("line", part), sk="at", low=low or "0", high=high, attributes=("at", "t", "j")
        )
        return [
            Hint(item["at"]["S"], text_of(item, "t"), part, text_of(item, "j"))
            for item in await self._db.items(which, limit=limit)
        ]


def _job_of(run: Run) -> str | None:
    """The recurring job of a run, of which its firing may still have to be written."""
    return None if run.slot is None or run.fence else run.job_id


def open_lanes(directory: Directory, queues: Collection[str]) -> list[Line]:
    """Return the lanes of the wanted queues (empty: of all), without those of paused ones."""
    paused = {name for name, settings in directory.settings.items() if settings.paused}
    return [
        line
        for line in directory.lanes
        if line.lane is not None and (not queues or line.lane.queue in queues) and line.lane.queue not in paused
    ]


def settings_key(queue: str) -> Item:
    """The key of the settings of a queue."""
    return {"pk": text(DIR), "sk": text(f"q#{queue}")}


def settings_item(settings: QueueSettings) -> Item:
    """The item of the settings of a queue."""
    item = {**settings_key(settings.queue), "paused": {"BOOL": settings.paused}}
    if settings.concurrency is not None:
        item["max"] = {"N": str(settings.concurrency)}
    return item


def settings_of(item: Item) -> QueueSettings:
    """The inverse of `settings_item`."""
    concurrency = int(item["max"]["N"]) if "max" in item else None
    return QueueSettings(queue=item["sk"]["S"][2:], paused=item["paused"]["BOOL"], concurrency=concurrency)


def _key(name: str) -> Item:
    return {"pk": text(DIR), "sk": text(f"l#{name}")}


def _line(item: Item) -> Line:
    lane = Lane(item["q"]["S"], int(item["pr"]["N"]), item["o"]["S"]) if "q" in item else None
    return Line(
        name=item["sk"]["S"][2:],
        lane=lane,
        shards=int(item["n"]["N"]),
        low=item["low"]["S"],
        next=item["next"]["S"],
        closing=item["closing"]["S"] if "closing" in item else None,
        rising=item["rising"]["S"] if "rising" in item else None,
    )


def _is_awake(line: Line, wakes: str) -> bool:
    return line.closing is None and line.next <= wakes and (line.rising or line.low) <= wakes
