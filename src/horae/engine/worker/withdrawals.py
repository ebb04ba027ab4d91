"""Takes runs away from a worker: because somebody stopped them, its lease is lost, or it is to end."""

from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from horae.core.errors import Unavailable
from horae.core.model import NodeId, Reason, Run, RunId
from horae.core.results import cancel, give_back, skip
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.worker.finisher import Finisher
from horae.engine.worker.phase import PhaseCause
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState
from horae.ports.clock import Clock
from horae.ports.store import Retraction, Store

log = structlog.get_logger(__name__)


class Withdrawer:
    """Ends or forgets what this node has in hand."""

    def __init__(
        self,
        state: WorkerState,
        ending: Finisher,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        settler: Settler,
        timing: Timing,
        node_id: Callable[[], NodeId],
    ) -> None:
        self._state = state
        self._finisher = ending
        self._store = store
        self._clock = clock
        self._lease = lease
        self._settler = settler
        self._timing = timing
        self._node_id = node_id
        self._looked_at: datetime | None = None  # for claims without an answer

    async def obey_stops(self) -> None:
        """Look up and follow the stop requests for runs of this node: a cancel always, others before the start only."""
        stops = await self._store.stops(self._node_id())
        for run_id, reason in stops.items():
            if reason is Reason.CANCELLED:
                self._cancel(run_id)
        held = [self._state.holding.get(run_id) for run_id in stops]
        await self.take_back([run for run in held if run is not None])

    async def take_back(self, runs: Sequence[Run]) -> None:
        """Return slots to a job that was paused; nothing of it starts while the store is asked."""
        if not runs:
            return
        for run in runs:
            self._state.holding.drop(run)
        answers = [Retraction.GOES_ON] * len(runs)
        asked = {run.id for run in runs}
        self._state.asked_back |= asked
        try:
            answers = await self._store.retract(runs, now=self._clock.now())
        except Unavailable:
            self._state.phase.move(PhaseCause.ANSWER_LOST)  # they may be gone all the same
            raise
        finally:
            self._state.asked_back -= asked
            now = self._clock.now()
            for run, answer in zip(runs, answers, strict=True):
                self._taken_back(run, answer, now)

    async def confirm_claims(self) -> None:
        """After a doubt about the lease: keep only what the store still shows as ours."""
        runs = list(self._state.everything())
        for run, ours in zip(runs, await self._store.held(runs), strict=True):
            if not ours:
                self._abandon(run)
        self._state.phase.move(PhaseCause.CLAIMS_CONFIRMED)

    async def return_unknown(self) -> None:
        """After a claim without an answer, or a lease that ran out: return what is ours for the store, but not for us.

        Once is not enough, for a store that is slow may do a claim that was long given up: what was in hand neither
        before nor after the look is unknown. The second look is the last.
        """
        since, now = self._state.unknown_since, self._clock.now()
        if since is None:
            return
        last = now - since >= self._timing.dead_after
        if not last and self._looked_at is not None and self._looked_at > since:
            return
        node, known = self._node_id(), self._known()
        ours = await self._store.held_by(node, until=now + self._timing.lead)
        if not self._state.acts_for(node):
            return
        known |= self._known()
        if lost := [run for run in ours if run.id not in known]:
            # At once, not by the settler: else the next claim would bring what is behind them in their gates.
            await self._store.settle([give_back(run, now) for run in lost])
            self._state.gates.free(run.gate for run in lost if run.gate is not None)
            log.warning("unknown_claims_returned", runs=len(lost))
        self._looked_at = now
        if last and self._state.unknown_since == since:
            self._state.unknown_since = None

    def _known(self) -> set[RunId]:
        """The runs that we hold, run, are asking back, or have a result of on its way."""
        mine = {run.id for run in self._state.everything()}
        return mine | self._state.asked_back | self._settler.on_their_way()

    def check_lease(self) -> None:
        """Stop everything when others may have been given our runs."""
        running, held = len(self._state.running), len(self._state.holding)
        if self._lease.expired and (running or held):
            log.warning("lease_lost", running=running, held=held)
            self.abandon_all()
            self._state.unknown_since = self._clock.now()  # if nobody buries us, they are still ours for the store

    def abandon_all(self) -> None:
        """Forget every run: whatever they still do is void. Results on their way still count in their gates."""
        for run in self._state.everything():
            self._abandon(run)
        self._state.holding.clear()

    def begin_drain(self) -> None:
        """Start nothing more and return what has not started."""
        self._state.phase.move(PhaseCause.SHUTDOWN)
        now = self._clock.now()
        for run in list(self._state.holding):
            if run in self._state.holding:  # else it went back with one before it
                self._state.holding.drop(run)
                self._finisher.end(give_back(run, now), now)

    def end_drain(self) -> None:
        """Stop what still runs; it is given back, not failed."""
        for attempt in self._state.running.values():
            attempt.stop()

    def _cancel(self, run_id: RunId) -> None:
        if (run := self._state.holding.get(run_id)) is not None:
            now = self._clock.now()
            self._state.holding.drop(run)
            self._finisher.end(cancel(run, now), now)
        elif (attempt := self._state.running.get(run_id)) is not None and not attempt.cancelled:
            attempt.cancelled = True
            attempt.stop()

    def _taken_back(self, run: Run, answer: Retraction, now: datetime) -> None:
        if not self._state.acts_for(run.node):
            self._state.gates.forget(run)
            return
        match answer:
            case Retraction.TAKEN_BACK:
                self._finisher.gone(skip(run, Reason.PAUSED, now).run, now)
            case Retraction.OVER:
                self._finisher.end(cancel(run, now), now)
            case Retraction.GOES_ON if self._state.phase.may.hold:
                self._state.holding.keep(run)
            case Retraction.GOES_ON:
                self._finisher.end(give_back(run, now), now)

    def _abandon(self, run: Run) -> None:
        self._state.holding.drop(run)
        self._state.gates.forget(run)
        attempt = self._state.running.pop(run.id, None)
        if attempt is not None:
            attempt.kill()
