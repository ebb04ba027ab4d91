"""What one worker has in hand: the runs that it holds, the attempts under way, and the slots for more."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.model import NodeId, Run, RunId
from horae.engine.cluster.lease import Lease
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult
from horae.engine.worker.capacity import Capacity
from horae.engine.worker.gates import Gates
from horae.engine.worker.held_runs import HeldRuns
from horae.engine.worker.phase import PhaseTracker


class AttemptRunner(Protocol):
    """Runs handlers; see `services.execution`."""

    @property
    def abandoned(self) -> int: ...

    def begin(
        self, run: Run, done: Callable[[Run, AttemptResult], None], progressed: Callable[[Run, float], None]
    ) -> RunningAttempt: ...


class WorkerState:
    """The state of a worker, from claim to result."""

    def __init__(
        self, executor: AttemptRunner, lease: Lease, node_id: Callable[[], NodeId], *, concurrency: int
    ) -> None:
        self._executor = executor
        self._lease = lease
        self._node_id = node_id
        self._concurrency = concurrency
        self.holding = HeldRuns()
        self.running: dict[RunId, RunningAttempt] = {}  # in the order of their starts
        self.ended = 0  # attempts so far
        self.gates = Gates()
        self.pace = Capacity()
        self.phase = PhaseTracker(lease)
        self.unknown_since: datetime | None = None  # since when the store may assign runs to us that we do not know
        self.asked_back: set[RunId] = set()  # neither held nor given up: the store is being asked

    @property
    def free_slots(self) -> int:
        return self._concurrency - len(self.running) - self._executor.abandoned

    def acts_for(self, node: NodeId | None) -> bool:
        """Whether this is still our identity; if not, it was declared dead, and all that it held is abandoned."""
        return not self._lease.lost and node == self._node_id()

    def turning(self, now: datetime, at_least: timedelta) -> int:
        """Slots whose attempt began so lately that it may well be over soon: twice the mean ago, or `at_least`."""
        since = now - max(timedelta(seconds=2 * self.pace.mean_seconds), at_least)
        young = 0
        for attempt in reversed(self.running.values()):
            if attempt.run.started_at is None or attempt.run.started_at < since:
                break
            young += 1
        return young

    def everything(self) -> list[Run]:
        """What is held and what runs."""
        return [*self.holding, *(attempt.run for attempt in self.running.values())]
