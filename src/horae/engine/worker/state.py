"""What the parts of one worker share: its store and clock, its phase, its held runs and the attempts under way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.model import NodeId, Run, RunId
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.execution.attempt import Done, Progressed, RunningAttempt
from horae.engine.worker.capacity import Capacity
from horae.engine.worker.gates import FULL, Gates
from horae.engine.worker.held_runs import HeldRuns
from horae.engine.worker.phase import PhaseTracker
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store


class AttemptRunner(Protocol):
    """Runs attempts: `execution.executor`, or a script in tests."""

    @property
    def abandoned(self) -> int: ...

    @property
    def lent(self) -> int: ...

    def when_lent(self, call: Callable[[], None]) -> None: ...

    def begin(self, run: Run, done: Done, progressed: Progressed) -> RunningAttempt: ...


@dataclass(slots=True)
class WorkerState:
    """The surroundings and the state of a worker; each part changes the state only in its own step."""

    store: Store
    clock: Clock
    lease: Lease
    executor: AttemptRunner
    metrics: Metrics
    timing: Timing
    node_id: Callable[[], NodeId]
    concurrency: int
    per_gate: int | None = None  # runs of one gate that are claimed at once, and held; None: few
    phase: PhaseTracker = field(init=False)
    held: HeldRuns = field(default_factory=HeldRuns)
    running: dict[RunId, RunningAttempt] = field(default_factory=dict)  # in the order of their starts
    ended: int = 0  # attempts so far
    gates: Gates = field(init=False)
    capacity: Capacity = field(default_factory=Capacity)
    retracting: set[RunId] = field(default_factory=set)  # not held until the store has answered
    given_up: dict[RunId, Run] = field(default_factory=dict)  # running when the lease expired; the store may not know
    unknown_since: datetime | None = None  # since when the store may assign runs to us that we do not know

    def __post_init__(self) -> None:
        self.phase = PhaseTracker(self.lease)
        self.gates = Gates(self.per_gate or FULL)

    @property
    def free_slots(self) -> int:
        """Attempts that can be started now."""
        return self.concurrency - self.busy - self.executor.abandoned

    @property
    def busy(self) -> int:
        """Attempts under way that do not wait for other runs."""
        return len(self.running) - self.executor.lent

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
        return max(young - self.executor.lent, 0)

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
