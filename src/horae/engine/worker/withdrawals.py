"""Takes runs away from a worker: because of a stop request, an expired lease or a shutdown."""

from collections.abc import Sequence
from datetime import datetime

import structlog

from horae.core.decisions.results import cancel, give_back, skip
from horae.core.errors import Unavailable
from horae.core.model import Reason, Run, RunId
from horae.engine.worker.phase import PhaseCause
from horae.engine.worker.releases import Releaser
from horae.engine.worker.retraction import Retraction, retract
from horae.engine.worker.state import WorkerState

log = structlog.get_logger(__name__)


class Withdrawer:
    """Cancels, retracts, gives back or abandons runs of this worker."""

    def __init__(self, state: WorkerState, releaser: Releaser) -> None:
        self._state = state
        self._releaser = releaser
        self._store = state.store
        self._clock = state.clock

    async def apply_stops(self) -> None:
        """Read and apply the stop requests for runs of this node: a cancel always, others before the start only."""
        stops = await self._store.stops(self._state.node_id())
        for run_id, reason in stops.items():
            if reason is Reason.CANCELLED:
                self._cancel(run_id)
        held = [self._state.held.get(run_id) for run_id in stops]
        await self.retract([run for run in held if run is not None])

    async def retract(self, runs: Sequence[Run]) -> None:
        """Return held runs of a paused job to their slots; none of them starts before the store has answered."""
        if not runs:
            return
        for run in runs:
            self._state.held.drop(run)
        answers = [Retraction.GOES_ON] * len(runs)
        asked = {run.id for run in runs}
        self._state.retracting |= asked
        try:
            answers = await retract(self._store, runs, now=self._clock.now())
        except Unavailable:
            self._state.phase.move(PhaseCause.ANSWER_LOST)  # they may have been taken back all the same
            raise
        finally:
            self._state.retracting -= asked
            for run, answer in zip(runs, answers, strict=True):
                self._retracted(run, answer)

    async def check_lease(self) -> None:
        """Abandon everything when other nodes may have been given our runs."""
        running, held = len(self._state.running), len(self._state.held)
        if self._state.lease.expired and (running or held):
            log.warning("lease_lost", running=running, held=held)
            self._state.given_up |= {run_id: attempt.run for run_id, attempt in self._state.running.items()}
            self.abandon_all()
            self._state.unknown_since = self._clock.now()  # the store counts them as ours unless we are declared dead

    def abandon_all(self) -> None:
        """Forget every run and kill the attempts; unsettled results still count in their gates."""
        for run in self._state.all_runs():
            self._state.abandon(run)
        self._state.held.clear()

    def begin_drain(self) -> None:
        """Start nothing more and give back what has not started."""
        self._state.phase.move(PhaseCause.SHUTDOWN)
        now = self._clock.now()
        self._give_back_all(list(self._state.held), now)

    def give_back_later_than(self, moment: datetime) -> None:
        """Give back what was claimed further ahead."""
        self._give_back_all([run for run in self._state.held if run.wake_at > moment], self._clock.now())

    def _give_back_all(self, runs: Sequence[Run], now: datetime) -> None:
        for run in runs:
            if run in self._state.held:  # else it was given back with one before it
                self._state.held.drop(run)
                self._releaser.settle(give_back(run, now), now)

    def end_drain(self) -> None:
        """Stop what still runs; it is given back, not failed."""
        for attempt in self._state.running.values():
            attempt.stop()

    def _cancel(self, run_id: RunId) -> None:
        if (run := self._state.held.get(run_id)) is not None:
            now = self._clock.now()
            self._state.held.drop(run)
            self._releaser.settle(cancel(run, now), now)
        elif (attempt := self._state.running.get(run_id)) is not None and not attempt.cancelled:
            attempt.cancelled = True
            attempt.stop()

    def _retracted(self, run: Run, answer: Retraction) -> None:
        now = self._clock.now()
        if not self._state.acts_for(run.node):
            self._state.gates.forget(run)
            return
        match answer:
            case Retraction.TAKEN_BACK:
                self._releaser.already_settled(skip(run, Reason.PAUSED, now).run, now)
            case Retraction.OVER:
                self._releaser.settle(cancel(run, now), now)
            case Retraction.GOES_ON if self._state.phase.may_hold:
                self._state.held.keep(run)
            case Retraction.GOES_ON:
                self._releaser.settle(give_back(run, now), now)
