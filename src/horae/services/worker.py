"""Claims runs ahead of their time, releases each at its own instant, and sees to it that its result is settled."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, assert_never

import structlog

from horae.clock import Clock
from horae.core.lifecycle import FINAL
from horae.core.model import NodeId, Reason, Run, RunId, State, Trigger
from horae.core.plan import (
    Failure,
    Settled,
    Verdict,
    cancel,
    fail,
    give_back,
    makes_way,
    overlap_is_open,
    release,
    skip,
    start,
    succeed,
)
from horae.core.values import replace
from horae.metrics import Metrics
from horae.services.execution import Execution, Result, Stopped, Success
from horae.services.gatekeeper import Gatekeeper
from horae.services.membership import Lease, Timing
from horae.services.settler import Settler
from horae.store import ClaimRequest, Claims, Contested, Retraction, Store

log = structlog.get_logger(__name__)

CLAIM_BATCH = 1000
SLICE = 200  # starts in one go before other work of the event loop gets its turn
MAX_UNSETTLED = 10_000  # results waiting for the store before nothing more is claimed
START_KNOWN = timedelta(seconds=1)  # starts are written late, but not by more than this
FLOOR_AGE = timedelta(seconds=10)  # transactions that commit later than this are found by the full scan
TURNOVER_LIMIT = 50  # how often a free slot is trusted to be used within the lead


class Executor(Protocol):
    """Runs handlers; see `services.execution`."""

    @property
    def abandoned(self) -> int: ...

    def begin(
        self, run: Run, done: Callable[[Run, Result], None], progressed: Callable[[Run, float], None]
    ) -> Execution: ...


class Alarm(Protocol):
    """Calls the worker back at one instant; setting it again replaces the instant."""

    def set(self, at: datetime | None) -> None: ...


@dataclass(slots=True)
class _Running:
    run: Run
    execution: Execution | None = None
    cancelled: bool = False


class Worker:
    """The runs that one node holds, from claim to settled result."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        executor: Executor,
        settler: Settler,
        metrics: Metrics,
        timing: Timing,
        node_id: Callable[[], NodeId],
        tasks: Sequence[str],
        queues: Sequence[str],
        concurrency: int,
        luck: Callable[[], float],
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._executor = executor
        self._settler = settler
        self._metrics = metrics
        self._timing = timing
        self._node_id = node_id
        self._tasks = tasks
        self._queues = queues
        self._concurrency = concurrency
        self._luck = luck
        self._gates = Gatekeeper()
        self._held: dict[RunId, Run] = {}  # claimed, not started
        self._timers: list[tuple[datetime, int, int, Run]] = []  # wake_at, -priority, order of arrival
        self._overdue: list[tuple[int, datetime, int, Run]] = []  # due, but no slot is free
        self._running: dict[RunId, _Running] = {}
        self._order = itertools.count()
        self._mean_seconds = 0.0  # of recent attempts; 0 until known
        self._floor: datetime | None = None
        self._scanned_at: datetime | None = None
        self._doubtful = False  # the lease was in doubt: claims must be confirmed before anything starts
        self._draining = False
        self._starved = False  # there was no room for more, so a result must wake the claims
        settler.settled = self._settled
        self.alarm: Alarm | None = None
        self.wake: Callable[[datetime | None], None] = lambda at: None

    # --- what others may ask

    @property
    def running(self) -> int:
        """Attempts under way."""
        return len(self._running)

    @property
    def holding(self) -> int:
        """Runs claimed and not yet started."""
        return len(self._held)

    @property
    def unsettled(self) -> int:
        """Results that the store has not answered yet."""
        return self._settler.unsettled

    @property
    def doubtful(self) -> bool:
        """Whether claims must be confirmed before anything starts."""
        return self._doubtful

    # --- claiming

    async def tick(self) -> datetime | None:
        """Claim once; answers when there is something to claim again."""
        if self._draining or self._lease.lost:
            return None
        if not self._lease.safe:
            self._doubtful = True
            return None  # the next heartbeat wakes us
        if self._doubtful:
            await self._confirm_claims()
        self._give_back_overdue()
        return await self._claim()

    async def _claim(self) -> datetime | None:
        room, free_gates = self._room(), self._gates.take_free()
        if room <= 0:
            self._starved = True  # the next result wakes us
            if not free_gates:
                return None
        now, node = self._clock.now(), self._node_id()
        number = self._gates.begin_claim()
        claims = await self._store.claim(
            ClaimRequest(
                node=node,
                queues=self._queues,
                tasks=self._tasks,
                now=now,
                until=now + self._timing.lead,
                floor=self._scan_floor(now) if room > 0 else now,
                limit=max(room, 0),
                full_gates=self._gates.full(),
                free_gates=free_gates,
            )
        )
        if self._lease.lost or node != self._node_id():
            return None  # abandoned meanwhile
        if not claims.alive:
            self._lease.lost = True
            return None
        for run in claims.runs:
            self._hold(run, number)
        self._gates.end_claim(number)
        self.release_due()
        unsure = await self._decide_contested(claims.contested)
        return self._next_claim(claims, room, now, unsure)

    def _next_claim(self, claims: Claims, room: int, now: datetime, unsure: bool) -> datetime | None:
        soon = now + self._timing.lead / 10  # claims of a steady stream come in groups
        if claims.more:
            self._starved = self._room() <= 0
            advanced = claims.runs or claims.contested
            return None if self._starved else now if advanced else soon
        if room > 0:
            self._floor = now - FLOOR_AGE  # everything before was offered to somebody
        if unsure:
            return soon
        return None if claims.next_at is None else max(claims.next_at - self._timing.lead, soon)

    def _scan_floor(self, now: datetime) -> datetime | None:
        if self._scanned_at is None or now - self._scanned_at >= FLOOR_AGE:
            self._scanned_at = now
            return None
        return self._floor

    def _room(self) -> int:
        """How many more runs can be started: free slots, as often as they are expected to be used within the lead."""
        if self._settler.unsettled >= MAX_UNSETTLED:
            return 0
        free = self._free_slots()
        turnover = 1.0
        if self._mean_seconds:
            turnover = min(max(self._timing.lead.total_seconds() / self._mean_seconds, 1.0), TURNOVER_LIMIT)
        return min(int(free * turnover) - len(self._held), CLAIM_BATCH)

    def _free_slots(self) -> int:
        return self._concurrency - len(self._running) - self._executor.abandoned

    def _hold(self, run: Run, claim: int) -> None:
        now = self._clock.now()
        if run.stop is Reason.CANCELLED:
            self._end(cancel(run, now))
            return
        if not self._gates.trusts(run, claim) or self._draining:
            self._end(give_back(run, now))
            return
        self._gates.enter(run)
        self._wait_for_instant(run)

    def _wait_for_instant(self, run: Run) -> None:
        self._held[run.id] = run
        heapq.heappush(self._timers, (run.wake_at, -run.spec.priority, next(self._order), run))

    async def _decide_contested(self, contested: Sequence[Contested]) -> bool:
        """Skip or park what is due behind another node's run; True when something has to be looked at again soon."""
        now = self._clock.now()
        ended: list[Settled] = []
        parked: list[Run] = []
        unsure = False
        for item in contested:
            match release(item.run, item.rivals, now):
                case Verdict.START:
                    unsure = True  # its gate is just being freed
                case Verdict.WAIT if now - item.run.due_at < START_KNOWN and overlap_is_open(item.run, item.rivals):
                    unsure = True
                case Verdict.WAIT:
                    parked.append(item.run)
                case Verdict.OVERLAP | Verdict.TOO_LATE as verdict:
                    ended.append(skip(item.run, Reason(verdict), now))
        if ended:
            await self._store.end_waiting(ended)
            self._metrics.ended(State.SKIPPED, len(ended))
        if parked:
            await self._store.park(parked)
        return unsure

    async def _confirm_claims(self) -> None:
        """After a doubt about the lease: keep only what the store still shows as ours."""
        held = await self._store.held(self._node_id())
        for run in [*self._held.values(), *(entry.run for entry in self._running.values())]:
            if held.get(run.id) != run.fence:
                self._abandon(run)
        self._doubtful = False
        self.release_due()

    # --- releasing

    def release_due(self) -> int:
        """Start what is due; called at the earliest instant that `alarm` was set to. Answers how many were released."""
        if not self._lease.safe:
            self._doubtful = True
        if self._doubtful or self._draining:
            return 0
        now = self._clock.now()
        released = 0
        while self._timers and self._timers[0][0] <= now and released < SLICE:
            run = heapq.heappop(self._timers)[3]
            if self._held.get(run.id) is run:
                self._release(run, now)
                released += 1
        self._arm(now)
        return released

    def _arm(self, now: datetime) -> None:
        if self.alarm is not None:
            self.alarm.set(max(self._timers[0][0], now) if self._timers else None)

    def _release(self, run: Run, now: datetime) -> None:
        match release(run, self._gates.rivals(run), now):
            case Verdict.START if self._free_slots() > 0:
                self._begin(run, now)
            case Verdict.START:
                heapq.heappush(self._overdue, (-run.spec.priority, run.due_at, next(self._order), run))
            case Verdict.WAIT:
                pass  # looked at again when the run before it ends
            case Verdict.OVERLAP | Verdict.TOO_LATE as verdict:
                self._drop(run)
                self._end(skip(run, Reason(verdict), now))

    def _begin(self, run: Run, now: datetime) -> None:
        del self._held[run.id]
        started = start(run, now)
        entry = self._running[run.id] = _Running(started)
        self._gates.enter(started)
        if started.attempt == 1 and run.first_started_at is None and run.trigger is not Trigger.REQUEUE:
            self._metrics.started(now - run.due_at)
        self._settler.started(started)
        entry.execution = self._executor.begin(started, self._done, self._progressed)

    def _fill_slots(self, now: datetime) -> None:
        while self._overdue and self._free_slots() > 0 and not self._doubtful and not self._draining:
            run = heapq.heappop(self._overdue)[3]
            if self._held.get(run.id) is run:
                self._release(run, now)

    def _give_back_overdue(self) -> None:
        """Return what has found no slot here for a while: another node may have one."""
        now = self._clock.now()
        late = [entry for entry in self._overdue if entry[1] <= now - self._timing.lead]
        if not late:
            return
        for *_, run in late:
            if self._held.get(run.id) is run:
                self._drop(run)
                self._end(give_back(run, now))
        self._overdue = [entry for entry in self._overdue if entry[3].id in self._held]
        heapq.heapify(self._overdue)

    # --- ending

    def _done(self, run: Run, result: Result) -> None:
        entry = self._running.get(run.id)
        if entry is None or entry.run.fence != run.fence:
            return  # abandoned: its result is void
        del self._running[run.id]
        now = self._clock.now()
        self._learn_duration(now - (entry.run.started_at or now))
        self._end(self._judge(entry, result, now))
        self._fill_slots(now)
        if self._starved and self._room() > 0:
            self._starved = False
            self.wake(None)

    def _judge(self, entry: _Running, result: Result, now: datetime) -> Settled:
        match result:
            case Success():
                return succeed(entry.run, result.result, now)
            case Failure():
                return cancel(entry.run, now) if entry.cancelled else fail(entry.run, result, now, self._luck())
            case Stopped():
                return cancel(entry.run, now) if entry.cancelled else give_back(entry.run, now)
        assert_never(result)

    def _leave_gate(self, run: Run) -> None:
        """A run is gone for good, and the store knows it already."""
        self._gates.leave(run)
        self._gates.settled(run)
        self._let_pass(run)

    def _end(self, settled: Settled) -> None:
        self._gates.leave(settled.run)
        self._settler.add(settled)
        self._let_pass(settled.run)

    def _let_pass(self, run: Run) -> None:
        """See to those behind a run that left its gate."""
        if run.gate is None:
            return
        now = self._clock.now()
        if not makes_way(run):
            self._give_back_line(run.gate, now)  # it is still ahead of them, wherever it goes on
            return
        for follower in self._gates.line(run.gate):
            if follower.wake_at <= now and follower.id in self._held:
                self._release(follower, now)

    def _give_back_line(self, gate: str, now: datetime) -> None:
        for follower in self._gates.line(gate):
            self._drop(follower)
            self._gates.leave(follower)
            self._settler.add(give_back(follower, now))

    def _settled(self, result: Settled, accepted: bool) -> None:
        """The store answered; a result that was not accepted is void, because the run had moved on."""
        self._gates.settled(result.run)
        if not accepted:
            log.warning("result_void", run_id=result.run.id, fence=result.run.fence)
        elif result.run.state in FINAL:
            self._metrics.ended(result.run.state, 1)
        if result.run.gate is not None:
            self.wake(None)

    def _drop(self, run: Run) -> None:
        """Take a run out of those that wait here; its timer finds it gone."""
        self._held.pop(run.id, None)

    def _progressed(self, run: Run, progress: float) -> None:
        entry = self._running.get(run.id)
        if entry is not None and entry.run.fence == run.fence:
            entry.run = replace(entry.run, progress=progress)
            self._settler.started(entry.run)

    def _learn_duration(self, duration: timedelta) -> None:
        seconds = max(duration.total_seconds(), 0.0001)
        self._mean_seconds = seconds if not self._mean_seconds else 0.95 * self._mean_seconds + 0.05 * seconds

    # --- stopping

    async def obey_stops(self) -> None:
        """Look up and follow the stop requests for runs of this node: a cancel always, others before the start only."""
        stops = await self._store.stops(self._node_id())
        for run_id, reason in stops.items():
            if reason is Reason.CANCELLED:
                self._cancel(run_id)
        await self._take_back([self._held[run_id] for run_id in stops if run_id in self._held])

    def _cancel(self, run_id: RunId) -> None:
        if (run := self._held.get(run_id)) is not None:
            self._drop(run)
            self._end(cancel(run, self._clock.now()))
        elif (entry := self._running.get(run_id)) is not None and not entry.cancelled:
            entry.cancelled = True
            assert entry.execution is not None
            entry.execution.stop()

    async def _take_back(self, runs: Sequence[Run]) -> None:
        """Return slots to a job that was paused; nothing of it starts while the store is asked."""
        if not runs:
            return
        for run in runs:
            self._drop(run)
        answers = [Retraction.GOES_ON] * len(runs)
        try:
            answers = await self._store.retract(runs, now=self._clock.now())
        finally:
            for run, answer in zip(runs, answers, strict=True):
                self._taken_back(run, answer)
        self.release_due()

    def _taken_back(self, run: Run, answer: Retraction) -> None:
        now = self._clock.now()
        if self._lease.lost or run.node != self._node_id():
            return  # abandoned meanwhile
        match answer:
            case Retraction.TAKEN_BACK:
                self._leave_gate(skip(run, Reason.PAUSED, now).run)
            case Retraction.OVER:
                self._end(cancel(run, now))
            case Retraction.GOES_ON if self._draining:
                self._end(give_back(run, now))
            case Retraction.GOES_ON:
                self._wait_for_instant(run)

    def check_lease(self) -> None:
        """Stop everything when others may have been given our runs."""
        if self._lease.expired and (self._running or self._held):
            log.warning("lease_lost", running=len(self._running), held=len(self._held))
            self.abandon_all()

    def abandon_all(self) -> None:
        """Forget every run: whatever they still do is void."""
        for run in [*self._held.values(), *(entry.run for entry in self._running.values())]:
            self._abandon(run)
        self._gates.clear()
        self._timers.clear()
        self._overdue.clear()

    def _abandon(self, run: Run) -> None:
        self._held.pop(run.id, None)
        entry = self._running.pop(run.id, None)
        if entry is not None and entry.execution is not None:
            entry.execution.kill()

    def begin_drain(self) -> None:
        """Start nothing more and return what has not started."""
        self._draining = True
        now = self._clock.now()
        for run in list(self._held.values()):
            self._drop(run)
            self._gates.leave(run)
            self._settler.add(give_back(run, now))

    def end_drain(self) -> None:
        """Stop what still runs; it is given back, not failed."""
        for entry in self._running.values():
            assert entry.execution is not None
            entry.execution.stop()
