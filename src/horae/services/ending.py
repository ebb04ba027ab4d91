"""Ends what a worker has in hand: judges results, lets the next of a gate pass, and hands all to the settler."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

import structlog

from horae.clock import Clock
from horae.core.lifecycle import FINAL
from horae.core.model import Run, State
from horae.core.plan import Failure, Settled, cancel, fail, give_back, makes_way, succeed
from horae.core.values import replace
from horae.metrics import Metrics
from horae.services.results import Result, Stopped, Success
from horae.services.settler import Settler
from horae.services.workload import Running, Workload

log = structlog.get_logger(__name__)


class Ending:
    """The way of a run out of the worker."""

    def __init__(
        self, workload: Workload, *, clock: Clock, settler: Settler, metrics: Metrics, luck: Callable[[], float]
    ) -> None:
        self._workload = workload
        self._clock = clock
        self._settler = settler
        self._metrics = metrics
        self._luck = luck
        self.release: Callable[[Run, datetime], None] = lambda run, now: None  # a held run may be next
        self.slot_freed: Callable[[datetime], None] = lambda now: None
        self.answered: Callable[[bool], None] = lambda gated: None  # results are settled, perhaps some of gates
        settler.settled = self._settled

    def done(self, run: Run, result: Result) -> None:
        """An attempt has its result."""
        running = self._workload.running
        entry = running.get(run.id)
        if entry is None or entry.run.fence != run.fence:
            return  # abandoned: its result is void
        del running[run.id]
        self._workload.ended += 1
        now = self._clock.now()
        if run.started_at is not None:
            self._workload.pace.learn((now - run.started_at).total_seconds())
        self.end(self._judge(entry, result, now), now)
        self.slot_freed(now)

    def progressed(self, run: Run, progress: float) -> None:
        """An attempt told how far it is."""
        entry = self._workload.running.get(run.id)
        if entry is not None and entry.run.fence == run.fence:
            entry.run = replace(entry.run, progress=progress)
            self._settler.started(entry.run, self._clock.now())

    def end(self, settled: Settled, now: datetime) -> None:
        """This node is through with a run, for good or for now."""
        self._settler.add(settled, now)
        if settled.run.gate is not None:
            self._workload.gates.leave(settled.run)
            self._let_pass(settled.run, now)

    def gone(self, run: Run, now: datetime) -> None:
        """A run is gone for good, and the store knows it already."""
        if run.gate is not None:
            self._workload.gates.leave(run)
            self._workload.gates.settled(run)
            self._let_pass(run, now)

    def _judge(self, entry: Running, result: Result, now: datetime) -> Settled:
        match result:
            case Success():
                return succeed(entry.run, result.result, now)
            case Failure():
                return cancel(entry.run, now) if entry.cancelled else fail(entry.run, result, now, self._luck())
            case Stopped():
                return cancel(entry.run, now) if entry.cancelled else give_back(entry.run, now)
        assert_never(result)

    def _let_pass(self, run: Run, now: datetime) -> None:
        """See to those behind a run that left its gate."""
        line = self._workload.gates.line(run.gate)
        if not makes_way(run):  # it is still ahead of them, wherever it goes on
            for follower in line:
                self._workload.holding.drop(follower)
                self._workload.gates.leave(follower)
                self._settler.add(give_back(follower, now), now)
            return
        for follower in line:
            if follower.wake_at <= now and follower in self._workload.holding:
                self.release(follower, now)

    def _settled(self, results: Sequence[Settled], answers: Sequence[bool]) -> None:
        """The store answered; a result that was not accepted is void, because the run had moved on."""
        ended: Counter[State] = Counter()
        gated = False
        for result, accepted in zip(results, answers, strict=True):
            run = result.run
            if run.gate is not None:
                self._workload.gates.settled(run)
                gated = True
            if not accepted:
                log.warning("result_void", run_id=run.id, fence=run.fence)
            elif run.state in FINAL:
                ended[run.state] += 1
        for state, count in ended.items():
            self._metrics.ended(state, count)
        self.answered(gated)
