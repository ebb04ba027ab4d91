"""Brings starts and results to the store in groups, again and again until each is accepted or void."""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from horae.clock import Clock
from horae.core.model import Run, RunId
from horae.core.plan import Settled
from horae.store import Store

GROUP = 500
RESULT_DELAY = timedelta(milliseconds=5)
START_DELAY = timedelta(milliseconds=100)  # a start is written lazily, or not at all when its result comes first


class Settler:
    """The way of results into the store; nothing that entered leaves before the store has answered."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._results: deque[Settled] = deque()
        self._starts: dict[RunId, tuple[datetime, Run]] = {}
        self.settled: Callable[[Settled, bool], None] = lambda result, accepted: None  # told of every answer
        self.wake: Callable[[datetime | None], None] = lambda at: None

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return len(self._results)

    def started(self, run: Run) -> None:
        """An attempt began, or made progress; to be written within START_DELAY."""
        at = self._clock.now() + START_DELAY
        first, _ = self._starts.get(run.id, (at, run))
        self._starts[run.id] = (first, run)
        self.wake(first)

    def add(self, result: Settled) -> None:
        """An attempt ended."""
        self._starts.pop(result.run.id, None)
        self._results.append(result)
        self.wake(None if len(self._results) >= GROUP else self._clock.now() + RESULT_DELAY)

    async def tick(self) -> datetime | None:
        """Write what is waiting; answers when the next lazy start must be written."""
        while self._results:
            await self._write_results()
        await self._write_starts()
        if self._results:
            return self._clock.now()
        return min((at for at, _ in self._starts.values()), default=None)

    async def _write_results(self) -> None:
        group = [self._results[i] for i in range(min(GROUP, len(self._results)))]
        answers = await self._store.settle(group)  # if it fails, the group is still in the queue and is sent again
        for result, accepted in zip(group, answers, strict=True):
            self._results.popleft()
            self.settled(result, accepted)

    async def _write_starts(self) -> None:
        now = self._clock.now()
        ripe = [run for at, run in self._starts.values() if at <= now]
        if not ripe:
            return
        await self._store.start(ripe)
        for run in ripe:
            if run.id in self._starts and self._starts[run.id][1] is run:
                del self._starts[run.id]
