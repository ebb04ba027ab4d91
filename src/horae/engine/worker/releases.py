"""Releases held runs: at their instants into free slots, and the next of a gate when a run leaves it."""

from collections.abc import Sequence
from datetime import datetime

from horae.core.decisions.release import Rival, Verdict, makes_way, release
from horae.core.decisions.results import Settled, give_back, skip, start
from horae.core.model import Reason, Run, Trigger
from horae.engine.execution.attempt import Done, Progressed
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState
from horae.engine.worker.timer import Timer

START_SLICE = 200  # starts in one go before other work of the event loop gets its turn: about two milliseconds
DUE_SLICE = 1000  # due runs that are decided in one go


class Releaser:
    """Starts held runs as the core decides; whatever takes a run out of the worker goes through `settle`."""

    def __init__(
        self, state: WorkerState, settler: Settler, timer: Timer, *, done: Done, progressed: Progressed
    ) -> None:
        """`done` and `progressed` are passed on to every attempt."""
        self._state = state
        self._settler = settler
        self._clock = state.clock
        self._executor = state.executor
        self._metrics = state.metrics
        self._timer = timer
        self._done = done
        self._progressed = progressed
        self._started: list[Run] = []  # for the first time, and not yet counted in the metrics
        self._starts_left = 0  # in this slice, and no more than there are free slots
        self._slicing = False  # the next slice comes at once

    def release_due(self) -> int:
        """Start what is due, set the timer to the next instant, and return how many runs were due."""
        state = self._state
        self._slicing = False
        if not state.phase.check_lease():
            return 0
        now = self._clock.now()
        self._fill_slots(now)  # with what the last slice has left
        due = state.held.due(now, DUE_SLICE)
        for run in due:
            self._release(run, now)
        self._count_started()
        self._slicing = state.held.overdue > 0 and state.free_slots > 0
        self._timer.set(now if self._slicing else self._next_at(now))
        return len(due)

    def use_free_slot(self, now: datetime) -> None:
        """Start an overdue run in a slot that was freed, unless the next slice fills all free slots anyway."""
        if not self._slicing:
            self._fill_slots(now)
            self._count_started()

    def settle(self, settled: Settled, now: datetime) -> None:
        """Hand what became of a run to the settler, and release the next of its gate."""
        self._settler.add(settled, now)
        if settled.run.gate is not None:
            self._state.gates.leave(settled.run)
            self._release_followers(settled.run, now)

    def already_settled(self, run: Run, now: datetime) -> None:
        """Release the next of its gate after a run whose end the store knows already."""
        if run.gate is not None:
            self._state.gates.leave(run)
            self._state.gates.settled(run)
            self._release_followers(run, now)

    def _next_at(self, now: datetime) -> datetime | None:
        following = self._state.held.next_at()
        return following if following is None else max(following, now)

    def _count_started(self) -> None:
        if self._started:
            self._metrics.started(self._started)
            self._started.clear()

    def _count_slots(self) -> None:
        self._starts_left = min(self._state.free_slots, START_SLICE)

    def _fill_slots(self, now: datetime) -> None:
        held = self._state.held
        if not self._state.phase.may_work:
            return
        self._count_slots()
        while held.overdue and self._starts_left > 0:
            for run in held.take_overdue(self._starts_left):
                self._release(run, now)

    def _release(self, run: Run, now: datetime) -> None:
        """Start a run if it may start now, and else decide what becomes of it."""
        state = self._state
        may_start = self._starts_left > 0
        rivals: Sequence[Rival] = ()
        if run not in state.held:
            return  # it was given back with one before it, or was kept twice and has already started
        if run.gate is not None:
            rivals = state.gates.rivals(run)
        elif not may_start:
            state.held.keep_overdue(run, now)  # decided when it gets a slot
            return
        match release(run, rivals, now):
            case Verdict.START if may_start:
                self._start(run, now)
            case Verdict.START:
                state.held.keep_overdue(run, now)
            case Verdict.WAIT:
                pass  # decided again when the run before it ends
            case Verdict.OVERLAP | Verdict.TOO_LATE as verdict:
                state.held.drop(run)
                self.settle(skip(run, Reason(verdict), now), now)

    def _start(self, run: Run, now: datetime) -> None:
        state = self._state
        self._starts_left -= 1
        state.held.drop(run)
        started = start(run, now)
        if run.gate is not None:
            state.gates.enter(started)
        if started.attempt == 1 and run.first_started_at is None and run.trigger is not Trigger.REQUEUE:
            self._started.append(started)
        self._settler.started(started, now)
        state.running[run.id] = self._executor.begin(started, self._done, self._progressed)

    def _release_followers(self, run: Run, now: datetime) -> None:
        """Release the runs behind one that left its gate, or give them back if it is still ahead of them elsewhere."""
        state = self._state
        if not makes_way(run):
            for follower in state.gates.waiting(run.gate):
                state.held.drop(follower)
                state.gates.leave(follower)
                self._settler.add(give_back(follower, now), now)
            return
        for follower in state.gates.waiting(run.gate, until=now):
            if follower in state.held:
                self._release_follower(follower, now)

    def _release_follower(self, run: Run, now: datetime) -> None:
        if not self._state.phase.may_work:
            self._state.held.keep(run)  # decided when work is resumed
            return
        self._count_slots()
        self._release(run, now)
        self._count_started()
