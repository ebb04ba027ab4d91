"""Brings starts and results to the store in groups, again and again until each is accepted or void."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile

from horae.clock import Clock
from horae.core.model import Run, RunId
from horae.core.plan import Settled
from horae.store import Store

ENOUGH = 500  # results that are written at once rather than after RESULT_DELAY
GROUP = 1000  # results in one write
RESULT_DELAY = timedelta(milliseconds=10)
START_DELAY = timedelta(milliseconds=100)  # a start is written lazily, or not at all when its result comes first


class Settler:
    """The way of results into the store; nothing that entered leaves before the store has answered."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._results: deque[Settled] = deque()
        self._starts: dict[RunId, Run] = {}
        self._ripening: deque[tuple[datetime, RunId]] = deque()  # when each start was told, oldest first
        self.settled: Callable[[Sequence[Settled], Sequence[bool]], None] = lambda results, answers: None
        self.wake: Callable[[datetime | None], None] = lambda at: None

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return len(self._results)

    def started(self, run: Run, now: datetime) -> None:
        """An attempt began, or made progress; to be written within START_DELAY."""
        if run.id not in self._starts:
            if not self._ripening:
                self.wake(now + START_DELAY)
            self._ripening.append((now, run.id))
        self._starts[run.id] = run

    def add(self, result: Settled, now: datetime) -> None:
        """An attempt ended."""
        self._starts.pop(result.run.id, None)
        self._results.append(result)
        waiting = len(self._results)
        if waiting == 1:
            self.wake(now + RESULT_DELAY)
        elif waiting == ENOUGH:
            self.wake(None)

    async def tick(self) -> datetime | None:
        """Write what is waiting; answers when there is something to write again."""
        if self._results:
            await self._write_results()
        while len(self._results) >= ENOUGH:
            await self._write_results()
        await self._write_starts(self._clock.now() - START_DELAY)
        if self._results:  # they came meanwhile, and wait for company
            return self._clock.now() + RESULT_DELAY
        return self._ripening[0][0] + START_DELAY if self._ripening else None

    async def _write_results(self) -> None:
        group = list(islice(self._results, GROUP))
        answers = await self._store.settle(group)  # if it fails, the group is still in the queue and is sent again
        for _ in group:
            self._results.popleft()
        self.settled(group, answers)

    async def _write_starts(self, told_by: datetime) -> None:
        """Write the starts that were told by then and have no result yet."""
        told = [run_id for _, run_id in takewhile(lambda entry: entry[0] <= told_by, self._ripening)]
        ripe = [self._starts[run_id] for run_id in told if run_id in self._starts]
        if ripe:
            await self._store.start(ripe)  # if it fails, they are still here and are sent again
        for _ in told:
            self._ripening.popleft()
        for run in ripe:
            if self._starts.get(run.id) is run:
                del self._starts[run.id]
            elif run.id in self._starts:  # it made progress meanwhile
                self._ripening.append((self._clock.now(), run.id))
