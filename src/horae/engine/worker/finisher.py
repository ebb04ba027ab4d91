"""Ends what a worker has in hand: judges results, lets the next of a gate pass, and hands all to the settler."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

import structlog

from horae.core.lifecycle import FINAL
from horae.core.model import Run
from horae.core.release import makes_way
from horae.core.results import Failure, Settled, cancel, fail, give_back, succeed
from horae.core.values import replace
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState
from horae.metrics import Metrics
from horae.ports.clock import Clock

log = structlog.get_logger(__name__)


class Finisher:
    """The way of a run out of the worker."""

    def __init__(
        self, state: WorkerState, *, clock: Clock, settler: Settler, metrics: Metrics, luck: Callable[[], float]
    ) -> None:
        self._state = state
        self._clock = clock
        self._settler = settler
        self._metrics = metrics
        self._luck = luck
        self.release: Callable[[Run, datetime], None] = lambda run, now: None  # a held run may be next
        self.slot_freed: Callable[[datetime], None] = lambda now: None
        self.answered: Callable[[bool], None] = lambda gated: None  # results are settled, perhaps some of gates
        settler.settled = self._settled

    def done(self, run: Run, result: AttemptResult) -> None:
        """An attempt has its result."""
        state = self._state
        attempt = state.running.get(run.id)
        if attempt is None or attempt.run.fence != run.fence:
            return  # abandoned: its result is void
        del state.running[run.id]
        state.ended += 1
        now = self._clock.now()
        if run.started_at is not None:
            state.pace.learn((now - run.started_at).total_seconds())
        self.end(self._judge(attempt, result, now), now)
        self.slot_freed(now)

    def progressed(self, run: Run, progress: float) -> None:
        """An attempt told how far it is."""
        attempt = self._state.running.get(run.id)
        if attempt is not None and attempt.run.fence == run.fence:
            attempt.run = replace(attempt.run, progress=progress)
            self._settler.started(attempt.run, self._clock.now())

    def end(self, settled: Settled, now: datetime) -> None:
        """This node is through with a run, for good or for now."""
        self._settler.add(settled, now)
        if settled.run.gate is not None:
            self._state.gates.leave(settled.run)
            self._let_pass(settled.run, now)

    def gone(self, run: Run, now: datetime) -> None:
        """A run is gone for good, and the store knows it already."""
        if run.gate is not None:
            self._state.gates.leave(run)
            self._state.gates.settled(run)
            self._let_pass(run, now)

    def _judge(self, attempt: RunningAttempt, result: AttemptResult, now: datetime) -> Settled:
        run = attempt.run
        match result:
            case Success():
                return succeed(run, result.result, now)
            case Failure():
                return cancel(run, now) if attempt.cancelled else fail(run, result, now, self._luck())
            case Stopped():
                return cancel(run, now) if attempt.cancelled else give_back(run, now)
        assert_never(result)

    def _let_pass(self, run: Run, now: datetime) -> None:
        """See to those behind a run that left its gate."""
        line = self._state.gates.line(run.gate)
        if not makes_way(run):  # it is still ahead of them, wherever it goes on
            for follower in line:
                self._state.holding.drop(follower)
                self._state.gates.leave(follower)
                self._settler.add(give_back(follower, now), now)
            return
        for follower in line:
            if follower.wake_at <= now and follower in self._state.holding:
                self.release(follower, now)

    def _settled(self, results: Sequence[Settled], answers: Sequence[bool]) -> None:
        """The store answered; a result that was not accepted is void, because the run had moved on."""
        gated = [result.run for result in results if result.run.gate is not None]
        for run in gated:
            self._state.gates.settled(run)
        void = [] if all(answers) else [result.run for result, ok in zip(results, answers, strict=True) if not ok]
        if void:  # one line for all: a lost lease may make thousands of results void
            log.warning("results_void", runs=len(void), first_run_id=void[0].id)
        ended = Counter([result.run.state for result in results])
        ended.subtract(run.state for run in void)
        for state in FINAL.intersection(ended):
            self._metrics.ended(state, ended[state])
        self.answered(bool(gated))
