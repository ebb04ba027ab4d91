"""The runs that one node works on: claimed ahead of their time, released each at its instant, settled, or withdrawn."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from horae.core.model import NodeId, Run
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.worker.claims import Claimer
from horae.engine.worker.finisher import Finisher
from horae.engine.worker.phase import WorkerPhase
from horae.engine.worker.releases import Releaser, Timer
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import AttemptRunner, WorkerState
from horae.engine.worker.withdrawals import Withdrawer
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import Store


class Worker:
    """Holds the parts of a worker together; each of them has one duty."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        executor: AttemptRunner,
        settler: Settler,
        metrics: Metrics,
        timing: Timing,
        node_id: Callable[[], NodeId],
        tasks: Sequence[str],
        queues: Sequence[str],
        concurrency: int,
        luck: Callable[[], float],
        spacing: timedelta = timedelta(milliseconds=5),
    ) -> None:
        """`spacing` is what claims that bring a little each keep between them."""
        self._settler = settler
        self._timing = timing
        self._state = WorkerState(executor, lease, node_id, concurrency=concurrency)
        self._finisher = Finisher(self._state, clock=clock, settler=settler, metrics=metrics, luck=luck)
        self._releaser = Releaser(
            self._state,
            self._finisher,
            clock=clock,
            executor=executor,
            settler=settler,
            metrics=metrics,
        )
        self._claiming = Claimer(
            self._state,
            self._finisher,
            self._releaser,
            store=store,
            clock=clock,
            lease=lease,
            settler=settler,
            metrics=metrics,
            timing=timing,
            node_id=node_id,
            tasks=tasks,
            queues=queues,
            spacing=spacing,
        )
        self._withdrawer = Withdrawer(
            self._state,
            self._finisher,
            store=store,
            clock=clock,
            lease=lease,
            settler=settler,
            timing=timing,
            node_id=node_id,
        )
        self._finisher.slot_freed = self._slot_freed
        self._finisher.answered = self._answered
        self.wake: Callable[[datetime | None], None] = lambda at: None  # have `tick` called then, or now

    @property
    def running(self) -> int:
        """Attempts under way."""
        return len(self._state.running)

    @property
    def holding(self) -> int:
        """Runs claimed and not yet started."""
        return len(self._state.holding)

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return self._settler.unsettled

    @property
    def suspended(self) -> bool:
        """Whether nothing is claimed or started until the lease is safe and the store has confirmed our claims."""
        return self._state.phase.suspended

    @property
    def alarm(self) -> Timer | None:
        """What calls `release_due` at the next instant."""
        return self._releaser.alarm

    @alarm.setter
    def alarm(self, alarm: Timer) -> None:
        self._releaser.alarm = alarm

    def heard(self, at: datetime | None) -> None:
        """There are runs to claim from `at` on; None when nobody knows from when on."""
        self._claiming.tell(at)
        self.wake(None if at is None else at - self._timing.lead)

    async def tick(self) -> datetime | None:
        """Claim once; answers when there is something to claim again."""
        phase = self._state.phase
        if phase.resume() is WorkerPhase.REVALIDATING:
            await self._withdrawer.confirm_claims()
            self.release_due()
        if not phase.may.claim:
            return None  # the next heartbeat wakes us, unless we drain
        await self._withdrawer.return_unknown()
        try:
            return await self._claiming.claim()
        finally:
            await self._take_back(self._claiming.take_stopped())

    def release_due(self) -> int:
        """Start what is due; called at the earliest instant that `alarm` was set to. Answers how many were released."""
        released = self._releaser.release_due()
        if (look_at := self._claiming.look_for_overdue()) is not None:
            self.wake(look_at)
        return released

    async def obey_stops(self) -> None:
        """Look up and follow the stop requests for runs of this node: a cancel always, others before the start only."""
        await self._withdrawer.obey_stops()
        self.release_due()

    def check_lease(self) -> None:
        """Stop everything when others may have been given our runs."""
        self._withdrawer.check_lease()

    def abandon_all(self) -> None:
        """Forget every run: whatever they still do is void."""
        self._withdrawer.abandon_all()

    def begin_drain(self) -> None:
        """Start nothing more and return what has not started."""
        self._withdrawer.begin_drain()

    def end_drain(self) -> None:
        """Stop what still runs; it is given back, not failed."""
        self._withdrawer.end_drain()

    async def _take_back(self, stopped: Sequence[Run]) -> None:
        if stopped:
            await self._withdrawer.take_back(stopped)
            self.release_due()

    def _slot_freed(self, now: datetime) -> None:
        self._releaser.slot_freed(now)
        if self._claiming.starved:
            self._claim_again()

    def _answered(self, gated: bool) -> None:
        if self._claiming.starved or (gated and self._claiming.lined_up):
            self._claim_again()
        elif gated:
            self.wake(self._claiming.soon())  # gates that are not needed any more are freed with the next claim

    def _claim_again(self) -> None:
        self._claiming.starved = False
        self.wake(None)
