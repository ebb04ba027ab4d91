"""Reads lanes for one claim in DynamoDB, and selects what it takes: shares, limits and gates are the core's."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from horae.core.decisions.fairness import Lane, Offer, Rooms, part_of_lane, share_out
from horae.core.decisions.gates import ClaimGates, Passage
from horae.core.lifecycle import FINAL, HELD
from horae.core.model import Run
from horae.core.records import QueueSettings
from horae.ports.store import ClaimRequest, Contested
from horae.stores.dynamodb.gates import Gate, is_waiting
from horae.stores.dynamodb.items import Item, run_of, stamp, state_of
from horae.stores.dynamodb.lines import Hint, Line, Lines, lane_of

MAX_CONTESTED = 1000  # blocked runs that one claim returns
LOOK_BEYOND = 100  # runs of a full queue that are looked at, because they may overlap
MAX_PAGE, MIN_PAGE = 500, 20  # hints of a lane that are read at once
MOST_SPENT = 200_000  # hints that are remembered as spent

GetRows = Callable[[Sequence[str]], Awaitable[list[Item]]]
GetGates = Callable[[Iterable[str]], Awaitable[dict[str, Gate]]]


class Spent:
    """Hints of runs that ended or wake at another time; remembered for a while, so that they are not read again."""

    def __init__(self) -> None:
        self._hints: set[tuple[str, str]] = set()

    def __contains__(self, hint: Hint) -> bool:
        return (hint.line, hint.at) in self._hints

    def add(self, hint: Hint) -> None:
        """Remember a hint."""
        if len(self._hints) >= MOST_SPENT:
            self._hints.clear()
        self._hints.add((hint.line, hint.at))

    def forget(self) -> None:
        """Forget all: a run may wake again when it once did."""
        self._hints.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a claim reads from."""

    lines: Lines
    rows: GetRows
    gates: GetGates
    spent: Spent
    complete: Callable[[Sequence[str]], Awaitable[None]]  # writes the runs that jobs have fired


class LaneRuns:
    """The runs of a lane that can be claimed, by wake-up time, read as far as they are needed."""

    def __init__(self, source: Source, line: Line, request: ClaimRequest, after: str) -> None:
        self.runs: list[Run] = []
        self.beyond: datetime | None = None  # when the first wakes after what the claim asks for, if `done`
        self.done = False  # whether all was read
        self._source = source
        self._line = line
        self._until = stamp(request.until)
        self._tasks = frozenset(request.tasks)
        self._low = after
        self._seen: set[str] = set()

    async def fill(self, count: int) -> None:
        """Read on until there are so many runs, or no more."""
        while not self.done and len(self.runs) < count:
            size = min(max(count - len(self.runs) + 1, MIN_PAGE), MAX_PAGE)
            hints = await self._source.lines.read(self._line, self._low, limit=size)
            self.done = len(hints) < size
            wanted = []
            for hint in hints:
                if hint.at[:20] > self._until:
                    self.done = True
                    if self.beyond is None and hint not in self._source.spent:
                        self.beyond = hint.wake_at
                elif hint.task in self._tasks and hint.ident not in self._seen and not self._is_useless(hint):
                    wanted.append(hint)
            if hints:
                self._low = hints[-1].at + "0"  # after this key
            if wanted:
                await self._read(wanted)

    def _is_useless(self, hint: Hint) -> bool:
        return hint in self._source.spent or self._source.lines.is_held(hint)

    async def _read(self, hints: Sequence[Hint]) -> None:
        rows = {item["id"]["S"]: item for item in await self._source.rows([hint.ident for hint in hints])}
        if fired := {hint.ident: hint.job for hint in hints if hint.ident not in rows and hint.job is not None}:
            await self._source.complete(sorted(set(fired.values())))
            rows |= {item["id"]["S"]: item for item in await self._source.rows(list(fired))}
        found = []
        for hint in hints:
            if (item := rows.get(hint.ident)) is None or hint.ident in self._seen:
                continue  # it is just being created, or never was; or it has another hint
            run, state = run_of(item), state_of(item)
            if state in FINAL or stamp(run.wake_at) != hint.at[:20] or lane_of(run) != self._line.lane:
                self._source.spent.add(hint)
            elif state in HELD:
                self._source.lines.note_held(hint)
            elif is_waiting(item, state):
                self._seen.add(hint.ident)
                found.append(run)
        self.runs += sorted(found, key=lambda run: (run.wake_at, run.id))

    async def first_beyond(self) -> datetime | None:
        """When the first run wakes after what the claim asks for."""
        if self.done:
            return self.beyond
        hints = await self._source.lines.read(self._line, f"{self._until}g", limit=1)
        return hints[0].wake_at if hints else None


@dataclass(slots=True)
class Scan:
    """What one claim reads and selects."""

    source: Source
    request: ClaimRequest
    settings: Mapping[str, QueueSettings]
    rooms: Rooms
    taken: list[Run] = field(default_factory=list)
    contested: list[Contested] = field(default_factory=list)
    gave: set[Lane] = field(default_factory=set)  # lanes of which some were taken
    more: bool = False  # whether there may be more to claim right now
    lanes: dict[Lane, LaneRuns] = field(default_factory=dict)
    known: dict[str, Gate] = field(default_factory=dict)
    gates: ClaimGates = field(init=False)
    _part: int = 0

    def __post_init__(self) -> None:
        request = self.request
        self.gates = ClaimGates(
            request.node, request.now, request.full_gates, request.undecided_gates, per_gate=request.per_gate
        )

    async def take(self, due: Sequence[Line]) -> None:
        """Take its share from each lane, the highest priority first."""
        for line in due:
            if line.lane is not None:
                self.lanes[line.lane] = LaneRuns(self.source, line, self.request, self._after(line, line.lane))
        limit = self.request.limit
        if limit <= 0:
            return
        self._part = part_of_lane(len(self.lanes), limit)
        await self._fill(self.lanes.values(), self._part if len(self.lanes) > 1 else limit)
        offers = sorted(self._offers(), key=lambda offer: -offer.lane.priority)
        shares = share_out(offers, limit, part=self._part)
        for _, same_priority in groupby(offers, key=lambda offer: offer.lane.priority):
            start = len(self.taken)
            for offer in same_priority:
                await self._take(offer, shares.get(offer.lane, 0))
            if len(offers) > 1:
                self.taken[start:] = sorted(self.taken[start:], key=lambda run: (run.wake_at, run.id))

    async def take_among(self, runs: Sequence[Run]) -> None:
        """Take what it may of the given runs, the highest priority first."""
        request, tasks = self.request, frozenset(self.request.tasks)
        await self._know(runs)
        for run in sorted(runs, key=lambda run: (-run.spec.priority, run.wake_at, run.id)):
            queue, settings = run.spec.queue, self.settings.get(run.spec.queue)
            paused = settings is not None and settings.paused
            wanted = not request.queues or queue in request.queues
            if paused or not wanted or run.wake_at > request.until or run.spec.task not in tasks:
                continue
            if self.rooms.is_full(queue):
                self._note_overlap(run)
            elif len(self.taken) < request.limit and (run.gate is None or self._passes(run, run.gate)):
                self.taken.append(run)
                self.rooms.take(queue)

    async def left(self) -> dict[Lane, datetime]:
        """When the first runs wake that wait in lanes of queues with settings, after what was taken."""
        ours = {run.id for run in self.taken}
        left = {}
        for lane, runs in self.lanes.items():
            if lane.queue in self.settings:
                await runs.fill(sum(run.id in ours for run in runs.runs) + 1)
                rest = (run.wake_at for run in runs.runs if run.id not in ours)
                left[lane] = next(rest, self.request.until)
        return left

    def _after(self, line: Line, lane: Lane) -> str:
        """Where a lane is read from; runs that a limit kept from being claimed are below the floor."""
        after = self.request.floor
        if lane.queue in self.settings:
            after = self.request.left.get(lane)
        return line.low if after is None else max(stamp(after), line.low)

    async def _fill(self, lanes: Iterable[LaneRuns], count: int) -> None:
        await asyncio.gather(*(runs.fill(count) for runs in lanes))
        await self._know(run for runs in lanes for run in runs.runs)

    async def _know(self, runs: Iterable[Run]) -> None:
        """Read the gates of runs that are not known yet."""
        gates = {run.gate for run in runs if run.gate is not None} - self.known.keys()
        if gates:
            self.known |= await self.source.gates(sorted(gates))

    def _offers(self) -> list[Offer]:
        """What each lane has; a single lane is not counted, because it shares with none."""
        if len(self.lanes) == 1:
            [lane] = self.lanes
            return [Offer(lane, self.request.limit, None, self.rooms.left.get(lane.queue))]
        offers = []
        for lane, runs in self.lanes.items():
            if self.rooms.is_full(lane.queue):
                offers.append(Offer(lane, 0, None, 0))
            elif able := [run for run in runs.runs if self._is_able(run)]:
                count = min(len(able), self._part)
                offers.append(Offer(lane, count, able[0].wake_at, self.rooms.left.get(lane.queue)))
        return offers

    def _is_able(self, run: Run) -> bool:
        """Whether a claim could return a run, as claimed or as contested."""
        if run.gate is None:
            return True
        if self.gates.is_due(run.due_at, run.wake_at) and run.gate not in self.request.undecided_gates:
            return True
        return not self.gates.is_full(run.gate) and self.known[run.gate].holder_for(self.request.node) in (
            None,
            self.request.node,
        )

    async def _take(self, offer: Offer, share: int) -> None:
        """Take up to `share` runs of a lane; of a full queue, check some due runs for overlap."""
        queue, got, place, runs = offer.lane.queue, 0, 0, self.lanes[offer.lane]
        if self.rooms.is_full(queue):
            await self._look_beyond(runs, 0)
            return
        if not share:
            self.more = True
            return
        limited = queue in self.rooms.left
        while True:
            if place == len(runs.runs):
                await self._fill([runs], place + max(share - got, MIN_PAGE))
                if place == len(runs.runs):
                    break
            run = runs.runs[place]
            place += 1
            if run.gate is None or self._passes(run, run.gate):
                got += 1
                self.taken.append(run)
                if limited:
                    self.rooms.take(queue)
            if len(self.contested) >= MAX_CONTESTED:
                self.more = True
                break
            if limited and self.rooms.is_full(queue):
                await self._look_beyond(runs, place)
                break
            if got == share:
                break
        if got:
            self.gave.add(offer.lane)
        self.more = self.more or (got > 0 and got == share and offer.count >= min(share + 1, self._part))

    def _passes(self, run: Run, gate: str) -> bool:
        """Whether the claim takes a run with a gate; notes a contested one."""
        ours = [taken.id for taken in self.taken if taken.gate == gate]
        state = None if self.gates.is_full(gate) else self.known[gate].state(run, self.request.node, ours)
        passage = self.gates.admit(gate, run.id, run.due_at, run.wake_at, state)
        if passage is Passage.CONTESTED:
            self.contested.append(Contested(run=run, rivals=self.known[gate].rivals(run, self.request.node)))
        return passage is Passage.TAKE

    async def _look_beyond(self, runs: LaneRuns, place: int) -> None:
        """Note due runs of a full queue as contested if others are ahead of them: they may overlap with these."""
        if len(self.contested) >= MAX_CONTESTED:
            self.more = True
            return
        await self._fill([runs], place + LOOK_BEYOND)
        for run in runs.runs[place : place + LOOK_BEYOND]:
            self._note_overlap(run)

    def _note_overlap(self, run: Run) -> None:
        is_due = run.gate is not None and self.gates.is_due(run.due_at, run.wake_at)
        if is_due and run.gate is not None and (ahead := self.known[run.gate].rivals(run, self.request.node)):
            self.contested.append(Contested(run=run, rivals=ahead))


def by_gate(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs that have a gate, by it."""
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.gate is not None:
            found[run.gate].append(run)
    return dict(found)
