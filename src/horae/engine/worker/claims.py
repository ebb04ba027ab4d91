"""Claims runs ahead of their time, as many as this node can start, and gives back what it cannot start after all."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from horae.core.decisions.results import cancel, give_back
from horae.core.errors import Unavailable
from horae.core.model import Reason, Run, RunId
from horae.engine.worker.contested import decide_contested
from horae.engine.worker.releases import Releaser
from horae.engine.worker.scan_floor import LeftRuns, ScanFloor
from horae.engine.worker.settler import Settler
from horae.engine.worker.state import WorkerState
from horae.engine.worker.tickets import Tickets
from horae.ports.store import ClaimRequest, Claims

CLAIM_BATCH = 1000
STREAM = 20  # claims of a steady stream within the lead
BESIDE_BACKLOG = 100  # runs in one claim of what comes due beside a backlog; the queues share it
PAST_UNDECIDED = 10  # extra claims past undecided contested runs
FEW_TICKETS = 100  # fewer that are claimed keep a distance to the next claim
WORTH = 10  # less than this part of all that may be held is not worth a claim


class Claimer:
    """Claims runs from the store, holds them and releases those that are due."""

    def __init__(
        self,
        state: WorkerState,
        releaser: Releaser,
        settler: Settler,
        *,
        tasks: Sequence[str],
        queues: Sequence[str],
        spacing: timedelta,
        tickets: Tickets | None = None,
    ) -> None:
        """`tickets` are those of a queue in front of the store; None: claims look into the store."""
        self._tickets = tickets
        self._state = state
        self._releaser = releaser
        self._settler = settler
        self._store = state.store
        self._clock = state.clock
        self._metrics = state.metrics
        self._lead = state.timing.lead
        self.reach = self._lead  # how far claims look ahead, unless there is a backlog
        self._stream_interval = self._lead / STREAM
        self._slot_patience = self._lead / 10  # with slots that show no sign of being free soon
        self._tasks = tasks
        self._queues = queues
        self._spacing = spacing
        self._floor = ScanFloor(self._lead)
        self._left = LeftRuns()
        self._claimed_at = 0.0  # the last claim by the monotonic clock: the store's may stand still
        self._spaced = False  # whether the next claim keeps a distance from the last
        self._backlog_at: datetime | None = None  # the store has more that is due from then on
        self._beside_backlog_at: datetime | None = None  # the last claim of what comes due beside the backlog
        self._ended_before = 0  # attempts that had ended at the last check of overdue runs
        self._stuck_since: datetime | None = None  # no attempt has ended since this check
        self._stop_requested: list[Run] = []  # claimed with a stop request that the node before us did not apply
        self.starved = False  # there was no room for more, so a result must wake the claims
        self.lined_up = False  # runs are next in gates of which we hold others, so a result must wake the claims

    def signal(self, at: datetime | None) -> None:
        """Note that there are runs to claim from `at` on; None when the time is not known."""
        self._floor.signal(at)

    def soon(self) -> datetime:
        """Return when a steady stream is claimed again."""
        return self._clock.now() + self._stream_interval

    def check_overdue_at(self) -> datetime | None:
        """Return when to check whether overdue runs must be given back; None when none waits for a slot."""
        return self._clock.now() + self._slot_patience if self._state.held.overdue else None

    def take_stop_requested(self) -> Sequence[Run]:
        """Return the runs that were claimed with a stop request; the caller has them retracted."""
        stop_requested, self._stop_requested = self._stop_requested, []
        return stop_requested

    async def claim(self) -> datetime | None:
        """Claim once, unless that was just done; returns when there is something to claim again."""
        now, elapsed = self._clock.now(), self._clock.elapsed()
        too_soon = self._spacing - timedelta(seconds=elapsed - self._claimed_at)
        if self._spaced and too_soon > timedelta():
            return now + too_soon
        self._claimed_at = elapsed
        self._give_back_overdue(now)
        if self._tickets is not None and self._tickets.healthy:
            return await self._claim_by_tickets(self._tickets, now)
        beside_at = await self._claim_beside_backlog(now)
        room, free_gates = self._room(now), self._state.gates.take_free()
        again = None
        if room == 0:
            self.starved = True  # the next result wakes us
            self._spaced = True
        if room > 0 or free_gates:
            again = await self._claim(now, room, free_gates)
        return min(filter(None, (again, beside_at, self.check_overdue_at())), default=None)

    def room_for_tickets(self) -> int:
        """Return how many tickets to take; without room the next result wakes us."""
        assert self._tickets is not None
        room = min(self._whole_room(self._clock.now()), 2 * CLAIM_BATCH) - self._tickets.untried
        if room <= 0:
            self.starved = True
        return max(min(room, CLAIM_BATCH), 0)

    async def _claim_by_tickets(self, tickets: Tickets, now: datetime) -> datetime | None:
        """Claim what we have tickets for; returns when to claim again."""
        room = self._room(now)
        self.starved = self.starved or room == 0
        run_ids, free_gates = tickets.ripe(now, room), self._state.gates.take_free()
        if not run_ids and not free_gates:
            return min(filter(None, (tickets.next_at() if room else None, self.check_overdue_at())), default=None)
        try:
            claimed = await self._claim_once(
                now, until=now + self._lead, floor=None, limit=len(run_ids), free_gates=free_gates, among=run_ids
            )
        except Unavailable:
            self._state.gates.free(free_gates)  # else no other node could ever claim in them
            raise
        if claimed is None:
            return None
        claims, undecided = claimed
        self._spaced = len(claims.runs) < FEW_TICKETS
        self.lined_up = claims.lined_up_at is not None or bool(self._state.gates.full())
        tickets.answered(run_ids, claims, undecided=undecided)
        return min(filter(None, (tickets.next_at(), self.check_overdue_at())), default=None)

    async def _claim_beside_backlog(self, now: datetime) -> datetime | None:
        """Claim what comes due during a backlog, so that it is not late, too; returns when to do so again."""
        interval = self._stream_interval
        limit = min(self._startable(now, 2 * interval) // 4, BESIDE_BACKLOG)  # half of the slots are for the backlog
        behind = self._backlog_at is not None and (self._backlog_at <= now or self._room(now) == 0)
        if not behind or limit <= 0 or self._settler.full:
            self._beside_backlog_at = None
            return None
        if self._beside_backlog_at is None or now >= self._beside_backlog_at + interval:
            floor, self._beside_backlog_at = (self._beside_backlog_at or now) - interval, now
            await self._claim_once(now, until=now + self._lead, floor=floor, limit=limit)
        return self._beside_backlog_at + interval

    async def _claim(self, now: datetime, room: int, free_gates: Sequence[str]) -> datetime | None:
        floor = self._floor.send(now) if room > 0 else now
        until = now + (self.reach if self._backlog_at is None else self._lead)
        try:
            claimed = await self._claim_once(now, until=until, floor=floor, limit=room, free_gates=free_gates)
        except Unavailable:
            self._state.gates.free(free_gates)  # else no other node could ever claim in them
            raise
        if claimed is None:
            return None
        claims, undecided = claimed
        again = self._next_claim(claims, room, now, until=until, undecided=undecided)
        if undecided:
            await self._claim_past_undecided(claims, now, floor=floor, limit=room)
        return min(filter(None, (again, self._floor.sweep_at)), default=None) if room > 0 else again

    async def _claim_past_undecided(self, claims: Claims, now: datetime, *, floor: datetime | None, limit: int) -> None:
        """Claim what was hidden behind contested runs that cannot be decided yet."""
        undecided: frozenset[str] = frozenset()
        for _ in range(PAST_UNDECIDED):
            more = undecided.union(item.run.gate for item in claims.contested if item.run.gate is not None)
            if more == undecided or claims.runs or not claims.more:
                return
            undecided = more
            until = now + self._lead
            claimed = await self._claim_once(now, until=until, floor=floor, limit=limit, undecided_gates=undecided)
            if claimed is None:
                return
            claims = claimed[0]

    async def _claim_once(
        self,
        now: datetime,
        *,
        until: datetime,
        floor: datetime | None,
        limit: int,
        free_gates: Sequence[str] = (),
        undecided_gates: Collection[str] = (),
        among: Sequence[RunId] | None = None,
    ) -> tuple[Claims, bool] | None:
        """Claim, hold what came, release what is due, and decide contested runs; the flag: some are still undecided.

        None when this node was declared dead meanwhile.
        """
        gates, node = self._state.gates, self._state.node_id()
        number = gates.begin_claim()
        request = ClaimRequest(
            node=node,
            queues=self._queues,
            tasks=self._tasks,
            now=now,
            until=until,
            floor=floor,
            left=self._left.begin(floor),
            limit=limit,
            per_gate=self._state.per_gate or 1,
            full_gates=gates.full(),
            free_gates=free_gates,
            undecided_gates=undecided_gates,
            among=among,
        )
        try:
            claims = await self._store.claim(request)
        except Unavailable:
            self._state.unknown_since = self._clock.now()  # the store may have done it all the same
            raise
        if not self._state.acts_for(node):
            return None
        if not claims.alive:
            self._state.lease.lost = True
            return None
        self._left.answered(claims)
        self._hold(claims.runs, number, asked_at=now)
        gates.end_claim(number)
        self._releaser.release_due()
        return claims, await decide_contested(claims.contested, self._clock.now(), self._store, self._metrics)

    def _hold(self, runs: Sequence[Run], number: int, *, asked_at: datetime) -> None:
        """Hold claimed runs until their instants; cancel, give back or set aside those that must not start."""
        now, state = self._clock.now(), self._state
        slow = now - asked_at > self._lead  # what was claimed ahead may have others before it by now
        held, gates, may_hold = state.held, state.gates, state.phase.may_hold
        for run in runs:
            if run.stop is Reason.CANCELLED:
                self._releaser.settle(cancel(run, now), now)
            elif not may_hold or (
                run.gate is not None and (not gates.trusts(run, number) or (slow and run.wake_at > asked_at))
            ):
                self._releaser.settle(give_back(run, now), now)
            else:
                if run.gate is not None:
                    gates.enter(run)
                if run.stop is None or run.attempt > 0:  # a pause does not stop what has already started once
                    held.keep(run)
                else:
                    self._stop_requested.append(run)
                    state.retracting.add(run.id)

    def _next_claim(
        self, claims: Claims, room: int, now: datetime, *, until: datetime, undecided: bool
    ) -> datetime | None:
        """Return when to claim again after what a claim brought."""
        advanced = claims.runs or (claims.contested and not undecided)
        soon = now + self._stream_interval
        self._spaced = bool(claims.runs) and not claims.more
        if room > 0:
            gates_full = bool(self._state.gates.full())
            self._backlog_at = min((run.wake_at for run in claims.runs), default=None) if claims.more else None
            self.lined_up = claims.lined_up_at is not None or gates_full
            took = self._clock.now() - now
            passed_over = bool(claims.contested) or gates_full
            self._floor.answered(claims, now=now, until=until, passed_over=passed_over, took=took)
        if claims.more:
            self.starved = self._room(now) == 0
            return None if self.starved else now if advanced else soon
        if undecided:
            return soon
        again = None if claims.next_at is None else max(claims.next_at - self._lead, soon)
        if until > now + self._lead and claims.left_at is not None:  # it is too early to decide about them
            left_at = claims.left_at - self._lead if claims.left_at > now + self._lead else claims.left_at
            again = left_at if again is None else min(again, left_at)
        return again

    def _room(self, now: datetime) -> int:
        """Return how many more runs to claim at once."""
        return min(self._whole_room(now), CLAIM_BATCH)

    def _whole_room(self, now: datetime) -> int:
        """Return how many more runs can be started within the lead; 0 while enough of them wait for a slot."""
        held = self._state.held
        if self._settler.full:
            return 0
        if held.overdue >= min(self._startable(now, self._slot_patience), 2 * CLAIM_BATCH):
            return 0
        startable = self._startable(now, self._lead)
        room = startable - held.count_until(now + self._lead)
        return room if room > startable // WORTH else 0

    def _startable(self, now: datetime, within: timedelta) -> int:
        state = self._state
        young = state.young_attempts(now, self._slot_patience)
        return state.capacity.startable(free=state.free_slots, young=young, within=within.total_seconds())

    def _give_back_overdue(self, now: datetime) -> None:
        """Give back what has found no slot here for a while: another node may have one."""
        held = self._state.held
        if not held.overdue:
            self._stuck_since = None
            return
        patience = self._slot_patience if self._stuck(now) else 2 * self._lead
        for run in held.take_overdue_since(now - patience):
            held.drop(run)
            self._releaser.settle(give_back(run, now), now)

    def _stuck(self, now: datetime) -> bool:
        """Return whether no attempt has ended for so long that no slot can be expected to be free soon.

        Measured from one check to the next: a process that was itself suspended has seen nothing end either.
        """
        ended, mean = self._state.ended, timedelta(seconds=2 * self._state.capacity.mean_seconds)
        if ended != self._ended_before or self._stuck_since is None:
            self._ended_before, self._stuck_since = ended, now
        return now - self._stuck_since >= max(self._slot_patience, mean)
