"""What one worker has in hand: the runs that it holds, the attempts under way, and the slots for more."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from horae.core.model import Run, RunId
from horae.engine.execution.attempt import Execution
from horae.engine.execution.outcome import Result
from horae.engine.worker.capacity import Pace
from horae.engine.worker.gates import Gatekeeper
from horae.engine.worker.held_runs import Holding


class Executor(Protocol):
    """Runs handlers; see `services.execution`."""

    @property
    def abandoned(self) -> int: ...

    def begin(
        self, run: Run, done: Callable[[Run, Result], None], progressed: Callable[[Run, float], None]
    ) -> Execution: ...


class Workload:
    """The state of a worker, from claim to result."""

    def __init__(self, executor: Executor, *, concurrency: int) -> None:
        self._executor = executor
        self._concurrency = concurrency
        self.holding = Holding()
        self.running: dict[RunId, Execution] = {}  # in the order of their starts
        self.ended = 0  # attempts so far
        self.gates = Gatekeeper()
        self.pace = Pace()
        self.doubtful = False  # the lease was in doubt: claims must be confirmed before anything starts
        self.unsure_since: datetime | None = None  # since when the store may count more as ours than we know of
        self.asked_back: set[RunId] = set()  # neither held nor given up: the store is being asked
        self.draining = False

    @property
    def free_slots(self) -> int:
        return self._concurrency - len(self.running) - self._executor.abandoned

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
