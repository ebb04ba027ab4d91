"""Brings starts and results to the store in groups, again and again until each is accepted or void."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, takewhile

from horae.core.model import Run, RunId
from horae.core.results import Settled
from horae.ports.clock import Clock
from horae.ports.store import Store

ENOUGH = 500  # results that are written at once rather than after a delay
GROUP = 1000  # results in one write
GROUP_SIZE = 16_000_000  # characters that they bring together, unless one alone brings more
MAX_UNSETTLED = 10_000  # results waiting for the store before nothing more is claimed
MAX_UNSETTLED_SIZE = 8 * GROUP_SIZE  # characters that they bring together before that
RESULT_DELAY = timedelta(milliseconds=10)
STREAM_DELAY = timedelta(milliseconds=40)  # while so many come that larger groups make each of them cheaper
STREAM = 50  # results without a gate in one write that make a stream
START_DELAY = timedelta(milliseconds=100)  # a start is written lazily, or not at all when its result comes first


class Settler:
    """The way of results into the store; nothing that entered leaves before the store has answered."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._results: list[Settled] = []
        self._size = 0  # characters that they bring
        self._write_at = self._streams_until = clock.now()
        self._starts: dict[RunId, tuple[datetime, Run]] = {}  # with when each was told, oldest first
        self._look_at: datetime | None = None  # for starts; None when there was none at the last look
        self.settled: Callable[[Sequence[Settled], Sequence[bool]], None] = lambda results, answers: None
        self.wake: Callable[[datetime | None], None] = lambda at: None

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return len(self._results)

    @property
    def full(self) -> bool:
        """Whether so much waits for the store that nothing should be added to it."""
        return len(self._results) >= MAX_UNSETTLED or self._size >= MAX_UNSETTLED_SIZE

    def on_their_way(self) -> set[RunId]:
        """The runs whose results the store has not answered yet."""
        return {result.run.id for result in self._results}

    def started(self, run: Run, now: datetime) -> None:
        """An attempt began, or made progress; to be written within START_DELAY."""
        told = self._starts.get(run.id)
        self._starts[run.id] = (now if told is None else told[0], run)
        if self._look_at is None:
            self._look_at = now + START_DELAY
            self.wake(self._look_at)

    def add(self, result: Settled, now: datetime) -> None:
        """An attempt ended."""
        self._starts.pop(result.run.id, None)
        self._results.append(result)
        self._size += _size(result)
        waiting, gated = len(self._results), result.run.gate is not None
        if waiting == ENOUGH:
            self.wake(None)
        elif waiting == 1 or (gated and now + RESULT_DELAY < self._write_at):
            self._write_at = now + self._delay(now, gated=gated)
            self.wake(self._write_at)

    async def tick(self) -> datetime | None:
        """Write what is waiting; answers when there is something to write again."""
        while True:
            if self._results:
                await self._write_results()
            await self._write_starts(self._clock.now() - START_DELAY)
            if len(self._results) < ENOUGH:
                break
        self._look_at = next((told_at + START_DELAY for told_at, _ in self._starts.values()), None)
        if self._results:  # they came meanwhile, and wait for company
            now, gated = self._clock.now(), any(result.run.gate is not None for result in self._results)
            self._write_at = now + self._delay(now, gated=gated)
            return self._write_at
        return self._look_at

    def _delay(self, now: datetime, *, gated: bool) -> timedelta:
        """How long results may wait for company; for one with a gate, the next of the gate may be waiting."""
        return RESULT_DELAY if gated or now >= self._streams_until else STREAM_DELAY

    async def _write_results(self) -> None:
        group = self._next_group()
        answers = await self._store.settle(group)  # if it fails, the group is still in line and is sent again
        del self._results[: len(group)]
        self._size -= sum(map(_size, group))
        if sum(result.run.gate is None for result in group) >= STREAM:
            self._streams_until = self._clock.now() + STREAM_DELAY
        self.settled(group, answers)

    def _next_group(self) -> list[Settled]:
        """The first in line; a store takes no statement of any size, and would refuse the same one for ever."""
        group = self._results[:GROUP]
        if self._size <= GROUP_SIZE:
            return group
        sizes = map(_size, group)
        fitting = sum(size <= GROUP_SIZE for size in accumulate(sizes))
        return group[: max(fitting, 1)]

    async def _write_starts(self, told_by: datetime) -> None:
        """Write the starts that were told by then and have no result yet."""
        ripe = [run for _, run in takewhile(lambda told: told[0] <= told_by, self._starts.values())]
        if not ripe:
            return
        await self._store.start(ripe)  # if it fails, they are still here and are sent again
        for run in ripe:
            told = self._starts.pop(run.id, None)
            if told is not None and told[1] is not run:  # it made progress meanwhile
                self._starts[run.id] = (self._clock.now(), told[1])


def _size(result: Settled) -> int:
    """The characters of what a task returned, beside which the rest is small."""
    return len(result.run.result or "")
