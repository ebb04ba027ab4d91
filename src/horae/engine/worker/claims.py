"""Claims runs ahead of their time, as many as this node can start, and gives back what it cannot start after all."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from horae.core.errors import Unavailable
from horae.core.model import NodeId, Reason, Run
from horae.core.results import cancel, give_back
from horae.engine.cluster.lease import Lease, Timing
from horae.engine.worker.contested import decide_contested
from horae.engine.worker.finisher import Finisher
from horae.engine.worker.releases import Releaser
from horae.engine.worker.scan_floor import ScanFloor
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState
from horae.metrics import Metrics
from horae.ports.clock import Clock
from horae.ports.store import ClaimRequest, Claims, Store

CLAIM_BATCH = 1000
STREAM = 20  # claims of a steady stream within the lead
BESIDE_BACKLOG = 100  # runs in one of the claims for what comes due meanwhile; the queues share it
BEHIND = 10  # times that a claim looks behind runs of which nobody can tell yet what becomes of them
WORTH = 10  # less than this part of all that may be held is not worth a claim


class Claimer:
    """Asks the store for runs."""

    def __init__(
        self,
        state: WorkerState,
        ending: Finisher,
        releasing: Releaser,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        settler: Settler,
        metrics: Metrics,
        timing: Timing,
        node_id: Callable[[], NodeId],
        tasks: Sequence[str],
        queues: Sequence[str],
        spacing: timedelta,
    ) -> None:
        self._state = state
        self._finisher = ending
        self._releaser = releasing
        self._store = store
        self._clock = clock
        self._lease = lease
        self._settler = settler
        self._metrics = metrics
        self._timing = timing
        self._often = timing.lead / STREAM
        self._patience = timing.lead / 10  # with slots that show no sign of being free soon
        self._node_id = node_id
        self._tasks = tasks
        self._queues = queues
        self._spacing = spacing
        self._floor = ScanFloor(timing.lead)
        self._began_at = 0.0  # the last claim, by the steady clock: that of the store may stand still
        self._spaced = False  # whether the next one keeps a distance from it
        self._backlog_at: datetime | None = None  # the store has more that is due from then on
        self._looked_at: datetime | None = None  # when something was claimed beside that
        self._ended_seen = 0  # attempts, when something overdue was last looked at
        self._stuck_since: datetime | None = None  # nothing has ended since this look
        self._stopped: list[Run] = []  # claimed, though somebody had asked the node that held them before to stop them
        self.starved = False  # there was no room for more, so a result must wake the claims
        self.lined_up = False  # runs are next in gates of which we hold others, so a result must wake the claims

    def tell(self, at: datetime | None) -> None:
        """There are runs to claim from `at` on; None when nobody knows from when on."""
        self._floor.tell(at)

    async def claim(self) -> datetime | None:
        """Claim once, unless that was just done; answers when there is something to claim again."""
        now, begins_at = self._clock.now(), self._clock.elapsed()
        too_soon = self._spacing - timedelta(seconds=begins_at - self._began_at)
        if self._spaced and too_soon > timedelta():
            return now + too_soon
        self._began_at = begins_at
        self._give_back_overdue(now)
        look_at = await self._claim_beside_backlog(now)
        room, free_gates = self._room(now), self._state.gates.take_free()
        again = None
        if room == 0:
            self.starved = True  # the next result wakes us
            self._spaced = True
        if room > 0 or free_gates:
            again = await self._claim(now, room, free_gates)
        return min(filter(None, (again, look_at, self.look_for_overdue())), default=None)

    def take_stopped(self) -> Sequence[Run]:
        """What was claimed with a request to stop it that no node had the time to follow: it is to be asked back."""
        stopped, self._stopped = self._stopped, []
        return stopped

    def look_for_overdue(self) -> datetime | None:
        """When to see whether what finds no slot here has to go back; None when everything found one."""
        return self._clock.now() + self._patience if self._state.holding.overdue else None

    async def _claim_beside_backlog(self, now: datetime) -> datetime | None:
        """Take what comes due while a backlog is worked off: it need not be late, too. Answers when to do so again."""
        often = self._often
        limit = min(self._startable(now, 2 * often) // 4, BESIDE_BACKLOG)  # half of the slots are for the backlog
        behind = self._backlog_at is not None and (self._backlog_at <= now or self._room(now) == 0)
        if not behind or limit <= 0 or self._settler.full:
            self._looked_at = None
            return None
        if self._looked_at is None or now >= self._looked_at + often:
            floor, self._looked_at = (self._looked_at or now) - often, now
            await self._claim_once(now, floor=floor, limit=limit)
        return self._looked_at + often

    async def _claim(self, now: datetime, room: int, free_gates: Sequence[str]) -> datetime | None:
        floor = self._floor.send(now) if room > 0 else now
        try:
            claimed = await self._claim_once(now, floor=floor, limit=room, free_gates=free_gates)
        except Unavailable:
            self._state.gates.free(free_gates)  # else nobody but us could ever claim in them
            raise
        if claimed is None:
            return None
        claims, unsure = claimed
        again = self._next_claim(claims, room, now, unsure=unsure)
        if unsure:
            await self._claim_behind(claims, now, floor=floor, limit=room)
        return min(filter(None, (again, self._floor.sweep_at)), default=None) if room > 0 else again

    async def _claim_behind(self, claims: Claims, now: datetime, *, floor: datetime | None, limit: int) -> None:
        """Take what could not be seen for runs that are contested and cannot be decided on yet."""
        undecided: frozenset[str] = frozenset()
        for _ in range(BEHIND):
            told = undecided.union(item.run.gate for item in claims.contested if item.run.gate is not None)
            if told == undecided or claims.runs or not claims.more:
                return
            undecided = told
            claimed = await self._claim_once(now, floor=floor, limit=limit, undecided_gates=undecided)
            if claimed is None:
                return
            claims = claimed[0]

    async def _claim_once(
        self,
        now: datetime,
        *,
        floor: datetime | None,
        limit: int,
        free_gates: Sequence[str] = (),
        undecided_gates: Collection[str] = (),
    ) -> tuple[Claims, bool] | None:
        """Claim, hold what came, start what is due of it, decide on what is contested, and tell whether that is open.

        None when this node is no longer what it was.
        """
        gates, node = self._state.gates, self._node_id()
        number = gates.begin_claim()
        request = ClaimRequest(
            node=node,
            queues=self._queues,
            tasks=self._tasks,
            now=now,
            until=now + self._timing.lead,
            floor=floor,
            limit=limit,
            full_gates=gates.full(),
            free_gates=free_gates,
            undecided_gates=undecided_gates,
        )
        try:
            claims = await self._store.claim(request)
        except Unavailable:
            self._state.unknown_since = self._clock.now()  # it may have been done all the same
            raise
        if not self._state.acts_for(node):
            return None
        if not claims.alive:
            self._lease.lost = True
            return None
        self._take(claims.runs, number, asked_at=now)
        gates.end_claim(number)
        self._releaser.release_due()
        return claims, await decide_contested(claims.contested, self._clock.now(), self._store, self._metrics)

    def _take(self, runs: Sequence[Run], number: int, *, asked_at: datetime) -> None:
        now, state = self._clock.now(), self._state
        slow = now - asked_at > self._timing.lead  # what was claimed ahead may have others before it by now
        holding, gates, may_hold = state.holding, state.gates, state.phase.may.hold
        for run in runs:
            if run.stop is Reason.CANCELLED:
                self._finisher.end(cancel(run, now), now)
            elif not may_hold or (
                run.gate is not None and (not gates.trusts(run, number) or (slow and run.wake_at > asked_at))
            ):
                self._finisher.end(give_back(run, now), now)
            else:
                if run.gate is not None:
                    gates.enter(run)
                if run.stop is None or run.attempt > 0:  # what was going when it was to be stopped goes on
                    holding.keep(run)
                else:
                    self._stopped.append(run)
                    state.asked_back.add(run.id)

    def _next_claim(self, claims: Claims, room: int, now: datetime, *, unsure: bool) -> datetime | None:
        advanced = claims.runs or (claims.contested and not unsure)
        if room > 0:
            self._backlog_at = min((run.wake_at for run in claims.runs), default=None) if claims.more else None
            self.lined_up = claims.lined_up_at is not None or bool(self._state.gates.full())
        soon = now + self._often
        self._spaced = bool(claims.runs) and not claims.more
        if room > 0:
            passed_over = bool(claims.contested or self._state.gates.full())
            took, until = self._clock.now() - now, now + self._timing.lead
            self._floor.answered(claims, now=now, until=until, passed_over=passed_over, took=took)
        if claims.more:
            self.starved = self._room(now) == 0
            return None if self.starved else now if advanced else soon
        if unsure:
            return soon
        return None if claims.next_at is None else max(claims.next_at - self._timing.lead, soon)

    def soon(self) -> datetime:
        """When a steady stream is claimed again."""
        return self._clock.now() + self._often

    def _room(self, now: datetime) -> int:
        """How many more runs can be started within the lead; none while enough of them wait for a slot."""
        holding = self._state.holding
        if self._settler.full:
            return 0
        if holding.overdue >= min(self._startable(now, self._patience), 2 * CLAIM_BATCH):
            return 0
        startable = self._startable(now, self._timing.lead)
        room = startable - len(holding)
        return min(room, CLAIM_BATCH) if room > startable // WORTH else 0

    def _startable(self, now: datetime, within: timedelta) -> int:
        state = self._state
        turning = state.turning(now, self._patience)
        return state.pace.startable(free=state.free_slots, turning=turning, within=within.total_seconds())

    def _give_back_overdue(self, now: datetime) -> None:
        """Return what has found no slot here for a while: another node may have one."""
        state = self._state
        if not state.holding.overdue:
            self._stuck_since = None
            return
        patience = self._patience if self._stuck(now) else 2 * self._timing.lead
        for run in state.holding.overdue_since(now - patience):
            state.holding.drop(run)
            self._finisher.end(give_back(run, now), now)

    def _stuck(self, now: datetime) -> bool:
        """Whether nothing has ended here for so long that no slot can be expected to be free soon.

        Counted from one look to another: a process that was itself held up has seen nothing end either.
        """
        if self._state.ended != self._ended_seen or self._stuck_since is None:
            self._ended_seen, self._stuck_since = self._state.ended, now
        return now - self._stuck_since >= max(self._patience, timedelta(seconds=2 * self._state.pace.mean_seconds))
