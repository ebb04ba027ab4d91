"""Takes the runs of one node through five steps: claim, hold, release, run, settle."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from horae.core.decisions.results import Failure, Settled, cancel, fail, give_back, succeed
from horae.core.model import NodeId, Run
from horae.core.values import replace
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.execution.attempt import RunningAttempt
from horae.engine.execution.outcome import AttemptResult, Stopped, Success
from horae.engine.failure_log import FailureLog
from horae.engine.worker.claims import Claimer
from horae.engine.worker.phase import WorkerPhase
from horae.engine.worker.reconcile import Reconciler
from horae.engine.worker.releases import Releaser
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import AttemptRunner, WorkerState
from horae.engine.worker.tickets import Tickets
from horae.engine.worker.timer import UVLOOP_SECONDS, LoopTimer, Timer
from horae.engine.worker.withdrawals import Withdrawer
from horae.loop import Wakeup
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.queue import Queue
from horae.ports.store import Store

PATIENCE = 3  # times the least distance between two takes, while what they bring is for later


class Worker:
    """The way of a run through this node, in the order in which it happens.

    1. Claim (`claims`): ask the store for runs that are due within the lead, as many as can be started here.
    2. Hold (`held_runs`): keep each until its instant, and then until a slot is free.
    3. Release (`releases`): at its instant start a run, let it wait in its gate, or skip it.
    4. Run (`execution.executor`): run one attempt of its task.
    5. Settle (`settler`): write what became of the run to the store, and use the free slot for the next one.

    `phase` says which steps are allowed. Runs leave the way early in `withdrawals` (stop requests, shutdown), and
    `reconcile` compares ours with the store's after an answer was lost.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        executor: AttemptRunner,
        metrics: Metrics,
        timing: Timing,
        node_id: Callable[[], NodeId],
        tasks: Sequence[str],
        queues: Sequence[str],
        concurrency: int,
        random_factor: Callable[[], float],
        spacing: timedelta = timedelta(milliseconds=5),
        per_gate: int | None = None,
        make_timer: Callable[[Callable[[], object]], Timer] | None = None,
        settle_wakeup: Wakeup | None = None,
        queue: Queue | None = None,
    ) -> None:
        """`spacing` is the least time between claims that bring little; `make_timer` gets what the timer calls.

        `per_gate` is how many runs of one gate to claim at once, and to hold; None: few, because others share them.
        `queue` is in front of the store; None: there is none, and claims look into the store.
        """
        self._clock = clock
        self._timing = timing
        self._spacing = spacing
        self._random_factor = random_factor
        self.failures = FailureLog()
        self.claim_wakeup = Wakeup(clock)  # for the loop that calls `claim`
        self.settle_wakeup = settle_wakeup or Wakeup(clock)  # for the loop that calls `settler.tick`
        self._state = state = WorkerState(
            store, clock, lease, executor, metrics, timing, node_id, concurrency, per_gate
        )
        wake = self.settle_wakeup.wake
        self.settler = settler = Settler(store, clock, metrics, wake=wake, settled=self._results_settled)
        timer = (make_timer or partial(LoopTimer, clock, resolution=UVLOOP_SECONDS))(self.release_due)
        self._releaser = releaser = Releaser(
            state, settler, timer, done=self._attempt_done, progressed=self._attempt_progressed
        )
        self.tickets = None if queue is None else self._tickets_of(queue, queues, tasks)
        self.tickets_wakeup = Wakeup(clock)  # for the loop that calls `take_tickets`
        self._claimer = Claimer(
            state, releaser, settler, tasks=tasks, queues=queues, spacing=spacing, tickets=self.tickets
        )
        self.withdrawer = Withdrawer(state, releaser)
        self._reconciler = Reconciler(state, settler)
        executor.when_lent(lambda: self._use_slot(self._clock.now()))
        self._watch_slots(state)

    def _watch_slots(self, state: WorkerState) -> None:
        state.metrics.watch_slots(
            free=lambda: max(state.free_slots, 0),
            busy=lambda: state.busy,
            waiting=lambda: state.executor.lent,
            abandoned=lambda: state.executor.abandoned,
        )

    @property
    def running(self) -> int:
        """Attempts under way."""
        return len(self._state.running)

    @property
    def busy(self) -> int:
        """Attempts under way that occupy a slot; those that wait for other runs do not."""
        return self._state.busy

    @property
    def holding(self) -> int:
        """Runs claimed and not yet started."""
        return len(self._state.held)

    @property
    def suspended(self) -> bool:
        """Whether nothing is claimed or started until the lease is safe and the store has confirmed our claims."""
        return self._state.phase.suspended

    @property
    def needs_results(self) -> bool:
        """Whether runs cannot be claimed before results are written."""
        return self._claimer.starved or self._claimer.lined_up

    # --- 1 and 2: claim and hold

    def look_ahead(self, reach: timedelta) -> None:
        """Claim so far ahead from now on, unless there is a backlog; only where no other node could use the runs."""
        self._claimer.reach = reach

    def signal(self, at: datetime | None) -> None:
        """Claim in time for runs that are due from `at` on; None when the time is not known."""
        self._claimer.signal(at)
        if self.tickets is not None and self.tickets.healthy:
            return  # the queue wakes us
        self.claim_wakeup.wake(None if at is None else at - self._timing.lead)

    def _tickets_of(self, queue: Queue, queues: Sequence[str], tasks: Sequence[str]) -> Tickets:
        return Tickets(
            queue,
            self._clock,
            self._state.metrics.tickets,
            lead=self._timing.lead,
            queues=queues,
            tasks=tasks,
            taken=self.claim_wakeup.wake,
        )

    async def take_tickets(self) -> datetime | None:
        """Take tickets of what is due soon, as many as there is room for; returns when to take again."""
        assert self.tickets is not None
        if not self._may_work():
            await self.tickets.leave()
            return None
        if (room := self._claimer.room_for_tickets()) == 0:
            return None  # the next result wakes us
        taken = await self.tickets.take(room)
        if not self._may_work():  # any more
            await self.tickets.leave()
            return None
        if taken >= room:
            return self._clock.now()
        return self._clock.now() + self._spacing * (1 if self.tickets.urgent else PATIENCE)

    def _may_work(self) -> bool:
        return self._state.phase.may_work

    async def claim(self) -> datetime | None:
        """Claim and hold runs once; returns when there is something to claim again."""
        phase = self._state.phase
        if phase.resume() is WorkerPhase.REVALIDATING:
            await self._reconciler.confirm_claims()
            self.release_due()
        if not phase.may_work:
            return None  # the next heartbeat wakes us, unless we drain
        await self._reconciler.return_unknown()
        try:
            return await self._claimer.claim()
        finally:
            if stop_requested := self._claimer.take_stop_requested():
                await self.withdrawer.retract(stop_requested)
                self.release_due()

    # --- 3 and 4: release and run

    def release_due(self) -> int:
        """Start attempts of the held runs that are due, and return how many were due; the timer calls it in time."""
        released = self._releaser.release_due()
        if (check_at := self._claimer.check_overdue_at()) is not None:
            self.claim_wakeup.wake(check_at)
        return released

    def _attempt_progressed(self, run: Run, progress: float) -> None:
        attempt = self._state.running.get(run.id)
        if attempt is not None and attempt.run.fence == run.fence:
            attempt.run = replace(attempt.run, progress=progress)
            self.settler.started(attempt.run, self._clock.now())

    # --- 5: settle

    def _attempt_done(self, run: Run, result: AttemptResult) -> None:
        """Hand the result of an attempt to the settler, and use its slot for the next run."""
        state = self._state
        attempt = state.running.get(run.id)
        if attempt is None or attempt.run.fence != run.fence:
            return  # abandoned: its result is void
        del state.running[run.id]
        state.ended += 1
        now = self._clock.now()
        if run.started_at is not None:
            state.capacity.learn((now - run.started_at).total_seconds())
        settled = self._judge(attempt, result, now)
        if isinstance(result, Failure) and not attempt.cancelled:
            self.failures.add(settled)
        self._releaser.settle(settled, now)
        self._use_slot(now)

    def _use_slot(self, now: datetime) -> None:
        """Use a slot that an attempt left or lent for the next run."""
        if self._state.held.overdue:
            self._releaser.use_free_slot(now)
        if self._claimer.starved:
            self._claim_again()

    def _judge(self, attempt: RunningAttempt, result: AttemptResult, now: datetime) -> Settled:
        """Decide what the result of an attempt makes of its run."""
        run = attempt.run
        match result:
            case Success():
                return succeed(run, result.result, now)
            case Failure():
                return cancel(run, now) if attempt.cancelled else fail(run, result, now, self._random_factor())
            case Stopped():
                return cancel(run, now) if attempt.cancelled else give_back(run, now)
        assert_never(result)

    def _results_settled(self, results: Sequence[Settled]) -> None:
        """Claim again when written results made room, or freed gates."""
        gated = [result.run for result in results if result.run.gate is not None]
        for run in gated:
            self._state.gates.settled(run)
        if self.tickets is not None:
            queues = {result.run.spec.queue for result in results}
            if self.tickets.try_soon(queues, gated=bool(gated)):
                self.claim_wakeup.wake()
        if self._claimer.starved or (gated and self._claimer.lined_up):
            self._claim_again()
        elif gated:
            self.claim_wakeup.wake(self._claimer.soon())  # the next claim frees gates that are not needed any more

    def _claim_again(self) -> None:
        self._claimer.starved = False
        self.claim_wakeup.wake()
        self.tickets_wakeup.wake()

    # --- leaving early

    async def apply_stops(self) -> None:
        """Apply the stop requests for runs of this node: a cancel always, others before the start only."""
        await self.withdrawer.apply_stops()
        self.release_due()
