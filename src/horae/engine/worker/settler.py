"""Writes starts and results to the store in groups, and sends them again until each is accepted or void."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, compress, takewhile

import structlog

from horae.core.decisions.results import Settled
from horae.core.model import Run, RunId
from horae.loop import Wake
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store

log = structlog.get_logger(__name__)

ENOUGH = 500  # results that are written at once rather than after a delay
GROUP = 1000  # results in one write
GROUP_SIZE = 16_000_000  # characters of results in one write, unless one alone has more
MAX_UNSETTLED = 10_000  # unsettled results at which nothing more is claimed
MAX_UNSETTLED_SIZE = 8 * GROUP_SIZE  # their characters at which nothing more is claimed
RESULT_DELAY = timedelta(milliseconds=10)
STREAM_DELAY = timedelta(milliseconds=40)  # while so many results come that larger groups make each of them cheaper
STREAM = 50  # results without a gate in one write that make a stream
START_DELAY = timedelta(milliseconds=100)  # a start is written lazily, or not at all when its result comes first


class Settler:
    """A buffer of results that nothing leaves before the store has answered."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        wake: Wake,
        settled: Callable[[Sequence[Settled]], None],
    ) -> None:
        """`wake` requests a tick; `settled` is called with each group that the store has answered."""
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._settled = settled
        self._results: list[Settled] = []
        self._size = 0  # their characters
        self._write_at = self._streams_until = clock.now()
        self._starts: dict[RunId, tuple[datetime, Run]] = {}  # with the time since which each waits, oldest first
        self._starts_at: datetime | None = None  # when starts are written next; None when none waited at the last tick

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return len(self._results)

    @property
    def full(self) -> bool:
        """Whether so much waits for the store that nothing should be added to it."""
        return len(self._results) >= MAX_UNSETTLED or self._size >= MAX_UNSETTLED_SIZE

    def unsettled_ids(self) -> set[RunId]:
        """Return the runs whose results the store has not answered yet."""
        return {result.run.id for result in self._results}

    def started(self, run: Run, now: datetime) -> None:
        """Write within START_DELAY that an attempt began, or made progress."""
        waiting = self._starts.get(run.id)
        self._starts[run.id] = (now if waiting is None else waiting[0], run)
        if self._starts_at is None:
            self._starts_at = now + START_DELAY
            self._wake(self._starts_at)

    def add(self, result: Settled, now: datetime) -> None:
        """Write soon what became of a run."""
        self._starts.pop(result.run.id, None)
        self._results.append(result)
        self._size += _size(result)
        waiting, gated = len(self._results), result.run.gate is not None
        if waiting == ENOUGH:
            self._wake(None)
        elif waiting == 1 or (gated and now + RESULT_DELAY < self._write_at):
            self._write_at = now + self._delay(now, gated=gated)
            self._wake(self._write_at)

    async def tick(self) -> datetime | None:
        """Write what is waiting; returns when there is something to write again."""
        while True:
            if self._results:
                await self._write_results()
            await self._write_starts(waiting_since=self._clock.now() - START_DELAY)
            if len(self._results) < ENOUGH:
                break
        self._starts_at = next((since + START_DELAY for since, _ in self._starts.values()), None)
        if self._results:  # they came meanwhile, and wait for more
            now, gated = self._clock.now(), any(result.run.gate is not None for result in self._results)
            self._write_at = now + self._delay(now, gated=gated)
            return self._write_at
        return self._starts_at

    async def flush(self) -> bool:
        """Write everything now, also starts that could wait; returns False when there was nothing."""
        if not self._starts and not self._results:
            return False
        await self.tick()
        await self._write_starts(waiting_since=self._clock.now())
        return True

    def _delay(self, now: datetime, *, gated: bool) -> timedelta:
        """Return how long results may wait for more: only briefly with a gate, whose next run may wait for them."""
        return RESULT_DELAY if gated or now >= self._streams_until else STREAM_DELAY

    async def _write_results(self) -> None:
        group = self._next_group()
        answers = await self._store.settle(group)  # if it fails, the group is still in the buffer and is sent again
        del self._results[: len(group)]
        self._size -= sum(map(_size, group))
        if sum(result.run.gate is None for result in group) >= STREAM:
            self._streams_until = self._clock.now() + STREAM_DELAY
        self._count(group, answers)
        self._settled(group)

    def _next_group(self) -> list[Settled]:
        """Return the first results of the buffer, so few that the store can take their size.

        It would refuse a statement that is too large, and the same one again and again.
        """
        group = self._results[:GROUP]
        if self._size <= GROUP_SIZE:
            return group
        sizes = map(_size, group)
        fitting = sum(size <= GROUP_SIZE for size in accumulate(sizes))
        return group[: max(fitting, 1)]

    def _count(self, results: Sequence[Settled], answers: Sequence[bool]) -> None:
        """Count what was written; a result that was not accepted is void, because its run had moved on."""
        void = [] if all(answers) else [result.run for result, ok in zip(results, answers, strict=True) if not ok]
        if void:  # one line for all: a lost lease may make thousands of results void
            log.warning("results_void", runs=len(void), first_run=f"run_{void[0].id}")
        written = results if not void else compress(results, answers)
        self._metrics.settled(written)

    async def _write_starts(self, *, waiting_since: datetime) -> None:
        """Write the starts that have waited since then and have no result yet."""
        ripe = [run for _, run in takewhile(lambda start: start[0] <= waiting_since, self._starts.values())]
        if not ripe:
            return
        await self._store.start(ripe)  # if it fails, they are still in the buffer and are sent again
        for run in ripe:
            start = self._starts.pop(run.id, None)
            if start is not None and start[1] is not run:  # it made progress meanwhile
                self._starts[run.id] = (self._clock.now(), start[1])


def _size(result: Settled) -> int:
    """Return the characters that a task returned; the rest of a result is small."""
    return len(result.run.result or "")
