"""Releases held runs at their instants: a slice at a time, into free slots, by the verdict of the core."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from horae.core.model import Reason, Run, Trigger
from horae.core.release import Rival, Verdict, release
from horae.core.results import skip, start
from horae.engine.worker.finisher import Finisher
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import AttemptRunner, WorkerState
from horae.metrics import Metrics
from horae.ports.clock import Clock

START_SLICE = 200  # starts in one go before other work of the event loop gets its turn: two milliseconds or so
DUE_SLICE = 1000  # runs whose instant has come that are looked at in one go


class Timer(Protocol):
    """Calls back at one instant; setting it again replaces the instant."""

    def set(self, at: datetime | None) -> None: ...


class Releaser:
    """The way of a run from its instant to its attempt."""

    def __init__(
        self,
        state: WorkerState,
        ending: Finisher,
        *,
        clock: Clock,
        executor: AttemptRunner,
        settler: Settler,
        metrics: Metrics,
    ) -> None:
        self._state = state
        self._finisher = ending
        self._clock = clock
        self._executor = executor
        self._settler = settler
        self._metrics = metrics
        self._starts_left = 0  # in this slice, and no more than there are free slots
        self._slicing = False  # the next slice comes at once
        self.alarm: Timer | None = None
        ending.release = self.release

    def release_due(self) -> int:
        """Start what is due; called at the earliest instant that `alarm` was set to. Answers how many were due."""
        state = self._state
        self._slicing = False
        if not state.phase.check_lease().start:
            return 0
        now = self._clock.now()
        self.fill_slots(now)  # with what the last slice has left
        due = state.holding.due(now, DUE_SLICE)
        for run in due:
            self._release(run, now)
        if self.alarm is not None:
            self._slicing = state.holding.overdue > 0 and state.free_slots > 0
            self.alarm.set(now if self._slicing else self._next_at(now))
        return len(due)

    def slot_freed(self, now: datetime) -> None:
        """Use a slot at once, unless there have been free ones before, which the next slices fill."""
        if self._state.holding.overdue and not self._slicing:
            self.fill_slots(now)

    def fill_slots(self, now: datetime) -> None:
        """Start what waits for a slot, as far as there are free ones."""
        state = self._state
        holding = state.holding
        if not state.phase.may.start:
            return
        self._count_slots()
        while holding.overdue and self._starts_left > 0:
            for run in holding.take_overdue(self._starts_left):
                self._release(run, now)

    def release(self, run: Run, now: datetime) -> None:
        """Start a held run if it may start now, and decide what becomes of it if not."""
        if not self._state.phase.may.start:
            self._state.holding.keep(run)  # decided when work goes on
            return
        self._count_slots()
        self._release(run, now)

    def _next_at(self, now: datetime) -> datetime | None:
        following = self._state.holding.next_at()
        return following if following is None else max(following, now)

    def _count_slots(self) -> None:
        self._starts_left = min(self._state.free_slots, START_SLICE)

    def _release(self, run: Run, now: datetime) -> None:
        state = self._state
        may_start = self._starts_left > 0
        rivals: Sequence[Rival] = ()
        if run not in state.holding:
            return  # it went back with one before it, or was kept for the second time and has begun
        if run.gate is not None:
            rivals = state.gates.rivals(run)
        elif not may_start:
            state.holding.keep_overdue(run, now)  # decided when it gets a slot
            return
        match release(run, rivals, now):
            case Verdict.START if may_start:
                self._begin(run, now)
            case Verdict.START:
                state.holding.keep_overdue(run, now)
            case Verdict.WAIT:
                pass  # looked at again when the run before it ends
            case Verdict.OVERLAP | Verdict.TOO_LATE as verdict:
                state.holding.drop(run)
                self._finisher.end(skip(run, Reason(verdict), now), now)

    def _begin(self, run: Run, now: datetime) -> None:
        state = self._state
        self._starts_left -= 1
        state.holding.drop(run)
        started = start(run, now)
        if run.gate is not None:
            state.gates.enter(started)
        if started.attempt == 1 and run.first_started_at is None and run.trigger is not Trigger.REQUEUE:
            self._metrics.started(now - run.due_at)
        self._settler.started(started, now)
        state.running[run.id] = self._executor.begin(started, self._finisher.done, self._finisher.progressed)
