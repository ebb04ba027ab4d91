"""One simulated life: hosts, users and faults on one real store, recovered and judged at the end."""

import asyncio
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog.testing

from horae.core.errors import Unavailable
from horae.core.lifecycle import FINAL
from horae.core.model import SHARDS, Misfire, Node, State
from horae.engine.cluster.lease import Timing
from horae.ports.reader import RunFilter
from horae.proof.checking.findings import run_name
from horae.proof.checking.history.final_state import read_final
from horae.proof.checking.history.records import (
    HeartbeatTaken,
    InjectedFault,
    LeaseGranted,
    Limit,
    Line,
    NodeGone,
    ProcessDied,
    ResultReport,
    Setup,
)
from horae.stores.sqlite.store import SqliteStore
from tests.memory_queue import MemoryQueue
from tests.simulation.faults import DOWN_SECONDS, FROZEN_SECONDS, SLOW_SECONDS, Faults, Fired, Kind
from tests.simulation.host import Host
from tests.simulation.judging import LEAST_RUNS, judge
from tests.simulation.memory import memory_store
from tests.simulation.recording import History
from tests.simulation.users import NARROW, Users
from tests.simulation.virtual import MICROS, SimulatedLoop
from tests.simulation.wire import Network

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
ACTIVE = 11.0  # seconds in which users act and things break
QUIET = 2.0  # seconds after that in which everything is to come to its end; more, if it is not there yet
LOOK_EVERY = 1.5  # seconds between two looks whether it is
PATIENCE = 90.0  # seconds in which nothing came to its end, after which nothing ever will
RECOVERY = 25.0  # seconds after a fault in which its traces may be seen
HELD_BACK = 10.0  # seconds that a worker may hold a run that has no slot: longer when calls are slow
HOSTS = 3
CLOCK_ERROR = 0.001  # seconds; and as much as a clock drifts while nothing sets it right
SILENCE = 30.0  # seconds; no outage and no standstill takes longer
EPOCH = START.timestamp()
WITH_QUEUE = 4  # of so many seeds the last one has a queue in front of the store
ROUNDS = 5  # of ending what is left of a life
TIMING = Timing(  # shorter than in life, so that more of it fits into one
    heartbeat=timedelta(seconds=2),
    dead_after=timedelta(seconds=6),
    horizon=timedelta(seconds=10),
    drain=timedelta(seconds=3),
)


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    violations: list[str]
    fired: Fired
    runs: int
    occurrences: Mapping[str, int]  # how often each required event occurred
    lines: Sequence[Line]  # the history

    @property
    def digest(self) -> str:
        """A hash of the history; equal lives have equal digests."""
        text = "\n".join(map(repr, self.lines))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Life:
    """The state of one simulated life."""

    def __init__(self, seed: int, loop: SimulatedLoop, store: SqliteStore, *, drift: float | None = None) -> None:
        self.seed = seed
        self.loop = loop
        self.start = START
        self.timing = TIMING
        self.store = store
        self.faults = Faults(seed, until=ACTIVE)
        self.faults.on_fault = self._record_call_fault
        if drift is not None:
            self.faults.drift = drift
        self.clock_error = CLOCK_ERROR + self.faults.drift * SILENCE
        self.history = History(self.at)
        self.queue: MemoryQueue | None = None
        if seed % WITH_QUEUE == WITH_QUEUE - 1:
            self.queue = MemoryQueue(self.now, mischief=self.faults.queue, chance=random.Random(f"{seed} tickets"))
        self.network = Network(store, loop, self.faults, self._watch)
        self.users = Users(self, seed, until=ACTIVE)
        self.hosts: list[Host] = []  # every process, also those that ended
        self.violations: list[str] = []
        self.runs = 0  # in the final state
        self.occurrences: Mapping[str, int] = {}
        self._chance = random.Random(f"{seed} hosts")
        self._names = 0

    def now(self) -> datetime:
        return START + timedelta(microseconds=self.loop.micros)

    def at(self) -> float:
        """The same in seconds since 1970, for the history."""
        return EPOCH + self.loop.micros / MICROS

    async def live(self) -> None:
        """Start hosts, users and faults, and run until all work is done."""
        for _ in range(HOSTS):
            self._begin(self._new_name())
        breaking = [self.loop.create_task(self._break_things(), name="faults")]
        breaking.append(self.loop.create_task(self.users.act(), name="users"))
        await asyncio.sleep(ACTIVE)
        await asyncio.gather(*breaking)
        await self._heal()
        await self._come_to_rest()
        await self._close()

    # --- what breaks

    async def _break_things(self) -> None:
        faults = self.faults
        plan = [
            *((at, self._freeze) for at in faults.frozen),
            *((at, self._leave) for at in faults.left),
            *((at, self._go_down) for at in faults.outages),
            *((at, self._empty_queue) for at in faults.emptied if self.queue is not None),
            *((at, self._break_queue) for at in faults.queue_outages if self.queue is not None),
        ]
        for at, fault in sorted(plan, key=lambda planned: planned[0]):
            await asyncio.sleep(max(at - self.loop.time(), 0))
            fault()

    def _freeze(self) -> None:
        if host := self._some_host():
            seconds = self.faults.choose(FROZEN_SECONDS)
            self._note(Kind.FROZEN, host.name, seconds)
            host.halted = True
            self.loop.call_later(seconds, self._thaw, host)

    def _thaw(self, host: Host) -> None:
        if not host.dead and host.halted:
            self.loop.resume_steps(host)

    def _leave(self) -> None:
        """Stop one host cleanly and start another."""
        if host := self._some_host():
            self._note(Kind.LEFT, host.name)
            host.services = None
            self.loop.spawn(host, self._stop(host), f"stop {host.name}")
            self._note(Kind.JOINED, host.name)
            self._begin(self._new_name())

    async def _stop(self, host: Host) -> None:
        host.leaving = True
        await host.stop()
        host.dead = True

    def _go_down(self) -> None:
        seconds = self.faults.choose(DOWN_SECONDS)
        self._note(Kind.OUTAGE, "store", seconds)
        self.network.down = True
        self.loop.call_later(seconds, self._come_up)

    def _empty_queue(self) -> None:
        assert self.queue is not None
        self._note(Kind.QUEUE_EMPTIED, "queue")
        self.queue.forget()

    def _break_queue(self) -> None:
        assert self.queue is not None
        seconds = self.faults.choose(DOWN_SECONDS)
        self._note(Kind.QUEUE_DOWN, "queue", seconds)
        self.queue.down = True
        self.loop.call_later(seconds, self._mend_queue)

    def _mend_queue(self) -> None:
        assert self.queue is not None
        self.queue.down = False

    def _come_up(self) -> None:
        self.network.down = False

    def _some_host(self) -> Host | None:
        up = [host for host in self.hosts if host.services is not None and not host.dead and not host.halted]
        return up[self.faults.pick(len(up))] if up else None

    def _note(self, kind: Kind, target: str, seconds: float = 0.0) -> None:
        self.faults.count(kind)
        self.history.add(InjectedFault(at=self.at(), fault=kind, target=target, until=self.at() + seconds))

    def _record_call_fault(self, kind: Kind) -> None:
        """Record a fault of a call."""
        self.history.add(InjectedFault(at=self.at(), fault=kind, target="a call", until=self.at() + max(SLOW_SECONDS)))

    # --- hosts

    def _new_name(self) -> str:
        self._names += 1
        return f"host-{self._names}"

    def _begin(self, name: str) -> None:
        number = len(self.hosts) + 1
        rng = random.Random(f"{self.seed} host {number}")
        drift = rng.choice((-1, 1)) * self.faults.drift
        if drift:
            self.faults.count(Kind.CLOCK)

        def kill(point: str) -> None:
            self._crash(host, point)

        wire = self.network.wire(kill)
        host = Host(name, number, wire, self.loop, TIMING, self.history, rng=rng, drift=drift, queue=self.queue)
        self.hosts.append(host)
        self.loop.spawn(host, self._run(host), f"run {name}")

    async def _run(self, host: Host) -> None:
        """Run a host as a supervisor does."""
        try:
            await host.start()
            await host.failed()
        except Unavailable:
            host.dead = True  # it could not start, and is started again
            host.services = None
            self.loop.call_later(1.0, self._begin, host.name, context=self.loop.outside)
        except Exception as exc:  # noqa: BLE001 - a defect: nothing but the store's absence may end a process
            if not host.leaving:
                self.violations.append(f"{host.name} ended by itself: {exc!r}")

    def _crash(self, host: Host, point: str) -> None:
        if host.dead:
            return
        self.history.add(
            InjectedFault(at=self.at(), fault=Kind.CRASH, target=f"{host.name} {point}"),
            ProcessDied(at=self.at(), pid=host.number),
        )
        host.dead = host.halted = True
        host.services = None
        host.unplug()
        wait = self.faults.choose((0.05, 1.0, 3.0, 7.5))
        self.loop.call_later(wait, self._begin, host.name, context=self.loop.outside)

    # --- the end

    async def _heal(self) -> None:
        self.network.down = False
        if self.queue is not None:
            self._mend_queue()
        for host in self.hosts:
            self._thaw(host)
        for _ in range(int(PATIENCE)):
            if await self.users.discard_letters():
                break
            await asyncio.sleep(1.0)
        live = await self.store.list_runs(RunFilter(states=_LIVE), cursor=None, limit=1000)
        for run in live.items:
            if run.paused:  # the runs behind it in its gate would wait for ever
                await self.users.resume(run.job_id, Misfire.ONCE)
        there = await self.store.list_runs(RunFilter(), cursor=None, limit=LEAST_RUNS)
        await self.users.create_missing(LEAST_RUNS - len(there.items))

    async def _come_to_rest(self) -> None:
        give_up_at = self.loop.time() + PATIENCE
        await asyncio.sleep(QUIET)
        before: list[str] = []
        while (unfinished := await self._unfinished()) and self.loop.time() < give_up_at:
            if len(unfinished) != len(before):  # it is on its way
                before, give_up_at = unfinished, self.loop.time() + PATIENCE
            await asyncio.sleep(LOOK_EVERY)
            await self.users.discard_letters()
        self.violations += [f"it never comes to rest: {what}" for what in unfinished]

    async def _unfinished(self) -> list[str]:
        """Describe the due work that is not done."""
        now = self.now()
        live = await self.store.list_runs(RunFilter(states=_LIVE), cursor=None, limit=1000)
        runs = [f"run {run.id} is {run.state}" for run in live.items if not run.paused and run.due_at <= now]
        plans = await self.store.plannable(list(range(SHARDS)), now=now + timedelta(days=1), limit=1000)
        jobs = [due.job for due in plans.jobs if due.job.next_fire_at is not None and due.job.next_fire_at <= now]
        return [
            *runs,
            *(f"job {job.id} has a slot at {job.next_fire_at}" for job in jobs),
            *(f"backfill of job {backfill.job_id} from {backfill.start} on" for backfill, _ in plans.backfills),
        ]

    async def _close(self) -> None:
        """Read the final state; no work is left, so it would be the same at any later time."""
        self.users.record_lost_updates()
        narrow_at = self.users.narrow_at
        later = self.at() + RECOVERY + PATIENCE
        narrow = Limit(scope="queue", name=NARROW, most=1, since=later if narrow_at is None else narrow_at + HELD_BACK)
        self.history.add(
            Setup(
                at=EPOCH,
                lateness=PATIENCE,
                recovery=RECOVERY,
                lease=TIMING.dead_after.total_seconds(),
                grace=1.0,
                clock_error=self.clock_error,
                limits=[narrow],
            )
        )
        self.history.add(*[line async for line in read_final(self.store, now=self.now(), at=later)])

    # --- what the store answers

    def _watch(self, verb: str, args: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        at, add = self.at(), self.history.add
        match verb:
            case "claim":
                for run in answer.runs:
                    add(LeaseGranted(at=at, run=run_name(run.id), fence=run.fence, node=args[0].node))
            case "settle":
                for settled, accepted in zip(args[0], answer, strict=True):
                    run = settled.run
                    add(ResultReport(at=at, run=run_name(run.id), fence=run.fence, accepted=accepted, status=run.state))
            case "beat" if answer is not None:
                add(HeartbeatTaken(at=at, node=args[0], sent_at=options["now"].timestamp()))
            case "apply":
                admitted = [change for change, refusal in zip(args[0], answer, strict=True) if refusal is None]
                for node in (item for change in admitted for item in change.puts if isinstance(item, Node)):
                    add(HeartbeatTaken(at=at, node=node.id, sent_at=node.beat_at.timestamp()))
                for node in (item for change in admitted for item in change.deletes if isinstance(item, Node)):
                    add(NodeGone(at=at, node=node.id))


_LIVE = frozenset(State) - FINAL


def simulate(seed: int, *, drift: float | None = None) -> Outcome:
    """Simulate and judge one life; steady clocks drift by the seed unless `drift` is given."""
    random.seed(seed)  # for the jitter of duties that back off
    loop = SimulatedLoop()
    with memory_store(lambda: START + timedelta(microseconds=loop.micros)) as store, structlog.testing.capture_logs():
        life = Life(seed, loop, store, drift=drift)
        try:
            loop.run_until_complete(life.live())
            found = [*life.violations, *loop.run_until_complete(judge(life))]
            lines = tuple(life.history.lines)  # before the remaining tasks are cancelled
        finally:
            life.network.over = True
            _end_tasks(loop, life.hosts)
        return Outcome(
            seed=seed,
            violations=found,
            fired=life.faults.fired,
            runs=life.runs,
            occurrences=life.occurrences,
            lines=lines,
        )


def _end_tasks(loop: SimulatedLoop, hosts: list[Host]) -> None:
    """Cancel every task, so that none is left to the garbage collector."""
    for host in hosts:
        loop.resume_steps(host)

    async def ended() -> None:
        for _ in range(ROUNDS):  # a cancelled task may start another
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=60)

    loop.run_until_complete(ended())
    loop.close()
