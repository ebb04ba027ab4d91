"""What the parts of one worker share: its phase, its held runs, the attempts under way and their slots."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.model import NodeId, Run, RunId
from horae.engine.cluster.lease import Lease
from horae.engine.execution.attempt import Done, Progressed, RunningAttempt
from horae.engine.worker.capacity import Capacity
from horae.engine.worker.gates import Gates
from horae.engine.worker.held_runs import HeldRuns
from horae.engine.worker.phase import PhaseTracker


class AttemptRunner(Protocol):
    """Runs attempts: `execution.executor`, or a script in tests."""

    @property
    def abandoned(self) -> int: ...

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt: ...


class WorkerState:
    """The state of a worker; each part changes it only in its own step."""

    def __init__(
        self, executor: AttemptRunner, lease: Lease, node_id: Callable[[], NodeId], *, concurrency: int
    ) -> None:
        self._concurrency = concurrency
        self.executor = executor
        self.lease = lease
        self.node_id = node_id
        self.phase = PhaseTracker(lease)
        self.held = HeldRuns()
        self.running: dict[RunId, RunningAttempt] = {}  # in the order of their starts
        self.ended = 0  # attempts so far
        self.gates = Gates()
        self.capacity = Capacity()
        self.retracting: set[RunId] = set()  # not held while the store is asked to take them back
        self.unknown_since: datetime | None = None  # since when the store may assign runs to us that we do not know

    @property
    def free_slots(self) -> int:
        """Attempts that can be started now."""
        return self._concurrency - len(self.running) - self.executor.abandoned

    def acts_for(self, node: NodeId | None) -> bool:
        """Whether this is still our identity; if not, it was declared dead, and all that it held is abandoned."""
        return not self.lease.lost and node == self.node_id()

    def young_attempts(self, now: datetime, at_least: timedelta) -> int:
        """Attempts that may well end soon: they began within twice the mean duration, or within `at_least`."""
        since = now - max(timedelta(seconds=2 * self.capacity.mean_seconds), at_least)
        young = 0
        for attempt in reversed(self.running.values()):
            if attempt.run.started_at is None or attempt.run.started_at < since:
                break
            young += 1
        return young

    def all_runs(self) -> list[Run]:
        """The held and the running runs."""
        return [*self.held, *(attempt.run for attempt in self.running.values())]

    def abandon(self, run: Run) -> None:
        """Forget a run that may be another node's by now, and kill its attempt."""
        self.held.drop(run)
        self.gates.forget(run)
        attempt = self.running.pop(run.id, None)
        if attempt is not None:
            attempt.kill()
