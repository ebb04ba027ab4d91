"""Reconciles what this worker has in hand with what the store assigns to it, after answers or the lease were lost."""

from datetime import datetime

import structlog

from horae.core.decisions.results import give_back
from horae.core.model import Run, RunId, State
from horae.core.values import replace
from horae.engine.worker.phase import PhaseCause
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState

log = structlog.get_logger(__name__)


class Reconciler:
    """Drops runs that are no longer ours, and returns runs that the store wrongly counts as ours."""

    def __init__(self, state: WorkerState, settler: Settler) -> None:
        self._state = state
        self._settler = settler
        self._store = state.store
        self._clock = state.clock
        self._timing = state.timing
        self._checked_at: datetime | None = None  # for unknown runs

    async def confirm_claims(self) -> None:
        """Abandon what the store no longer assigns to us, so that work can go on."""
        runs = self._state.all_runs()
        for run, ours in zip(runs, await self._store.still_held(runs), strict=True):
            if not ours:
                self._state.abandon(run)
        self._state.phase.move(PhaseCause.CLAIMS_CONFIRMED)

    async def return_unknown(self) -> None:
        """Return runs that the store assigns to us and we do not know.

        They come from a claim without an answer, or from a lease that expired without our being declared dead. Repeat
        after `dead_after`: a slow store may still execute an abandoned claim. A run is unknown if we had it neither
        before nor after the store was asked.
        """
        since, now = self._state.unknown_since, self._clock.now()
        if since is None:
            return
        last = now - since >= self._timing.dead_after
        if not last and self._checked_at is not None and self._checked_at > since:
            return
        node, known = self._state.node_id(), self._known()
        ours = await self._store.held_by(node, until=now + self._timing.lead)
        if not self._state.acts_for(node):
            return
        known |= self._known()
        if unknown := [run for run in ours if run.id not in known]:
            # At once, not by the settler: else the next claim would bring what is behind them in their gates.
            await self._store.settle([give_back(self._as_begun(run), now) for run in unknown])
            self._state.gates.free(run.gate for run in unknown if run.gate is not None)
            log.warning("unknown_claims_returned", runs=len(unknown))
        self._checked_at = now
        if last and self._state.unknown_since == since:
            self._state.unknown_since = None
            self._state.given_up.clear()

    def _as_begun(self, run: Run) -> Run:
        """Return the run with the attempt that we gave up, if the store never learned of its start."""
        begun = self._state.given_up.get(run.id)
        if begun is None or begun.fence != run.fence or run.state is not State.CLAIMED:
            return run
        return replace(
            run,
            state=begun.state,
            attempt=begun.attempt,
            started_at=begun.started_at,
            first_started_at=begun.first_started_at,
        )

    def _known(self) -> set[RunId]:
        """Return the runs that we hold, run or retract, or whose results are not settled."""
        return {run.id for run in self._state.all_runs()} | self._state.retracting | self._settler.unsettled_ids()
