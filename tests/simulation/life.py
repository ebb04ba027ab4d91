"""One simulated life from its seed: hosts, users and faults on one real store, healed and judged at the end."""

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog.testing

from horae.core.errors import Unavailable
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, Misfire, RunId, State
from horae.run import Run as Attempt
from horae.services.membership import Timing
from horae.store import RunFilter
from horae.stores.sqlite import SqliteStore
from horae.tasks.registry import Registry, Task
from tests.simulation.faults import DOWN_SECONDS, FROZEN_SECONDS, Faults, Fired, Kind
from tests.simulation.host import Host
from tests.simulation.judging import LEAST_RUNS, judge
from tests.simulation.memory import memory_store
from tests.simulation.recording import Beaten, Effect, Fault, Gone, Leased, Record, Recording, Reported
from tests.simulation.users import Users
from tests.simulation.virtual import MACHINE, SimulatedLoop
from tests.simulation.wire import Network

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
ACTIVE = 20.0  # seconds in which users act and things break
QUIET = 5.0  # seconds after that in which everything is to come to its end; more, if it is not there yet
PATIENCE = 90.0  # seconds after which it never will
HOSTS = 3
ROUNDS = 5  # of ending what is left of a life
TIMING = Timing(
    dead_after=timedelta(seconds=9), horizon=timedelta(seconds=15), drain=timedelta(seconds=4)
)  # shorter than in life, so that more of it fits into one


@dataclass
class Outcome:
    """What one seed showed."""

    seed: int
    violations: list[str]
    fired: Fired
    runs: int
    records: Sequence[Record]

    @property
    def digest(self) -> str:
        """Of everything that was seen: equal for lives that are equal."""
        text = "\n".join(map(repr, self.records))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Life:
    """Everything that belongs to one seed."""

    def __init__(self, seed: int, loop: SimulatedLoop, store: SqliteStore) -> None:
        self.seed = seed
        self.loop = loop
        self.start = START
        self.timing = TIMING
        self.store = store
        self.faults = Faults(seed, until=ACTIVE)
        self.recording = Recording(self.now)
        self.network = Network(store, loop, self.faults, self._watch)
        self.users = Users(self, seed, until=ACTIVE)
        self.hosts: list[Host] = []  # every process that ever was
        self.violations: list[str] = []
        self.runs = 0  # that there were at the end
        self._chance = random.Random(f"{seed} hosts")
        self._names = 0
        self._healed = False
        self._registry = Registry()
        self._registry.add(Task(self._work, name="work"))

    def now(self) -> datetime:
        return START + timedelta(microseconds=self.loop.micros)

    async def live(self) -> None:
        """From the first host to the last answer, and on until everything is over."""
        for _ in range(HOSTS):
            self._begin(self._new_name())
        breaking = [self.loop.create_task(self._break_things(), name="faults")]
        breaking.append(self.loop.create_task(self.users.act(), name="users"))
        await asyncio.sleep(ACTIVE)
        await asyncio.gather(*breaking)
        await self._heal()
        await self._come_to_rest()

    # --- what breaks

    async def _break_things(self) -> None:
        faults = self.faults
        plan = [
            *((at, self._freeze) for at in faults.frozen),
            *((at, self._leave) for at in faults.left),
            *((at, self._go_down) for at in faults.outages),
        ]
        for at, fault in sorted(plan, key=lambda planned: planned[0]):
            await asyncio.sleep(max(at - self.loop.time(), 0))
            fault()

    def _freeze(self) -> None:
        if host := self._some_host():
            seconds = self.faults.choose(FROZEN_SECONDS)
            self._note(Kind.FROZEN, host.name, f"{seconds} s")
            host.stands = True
            self.loop.call_later(seconds, self._thaw, host)

    def _thaw(self, host: Host) -> None:
        if not host.dead and host.stands:
            self.loop.go_on(host)

    def _leave(self) -> None:
        """One goes in order, another comes."""
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
        self._note(Kind.OUTAGE, "store", f"{seconds} s")
        self.network.down = True
        self.loop.call_later(seconds, self._come_up)

    def _come_up(self) -> None:
        self.network.down = False

    def _some_host(self) -> Host | None:
        up = [host for host in self.hosts if host.services is not None and not host.dead and not host.stands]
        return up[self.faults.pick(len(up))] if up else None

    def _note(self, kind: Kind, target: str, detail: str = "") -> None:
        self.faults.count(kind)
        self.recording.add(Fault(self.now(), kind, target, detail))

    # --- hosts

    def _new_name(self) -> str:
        self._names += 1
        return f"host-{self._names}"

    def _begin(self, name: str) -> None:
        number = len(self.hosts)
        luck = random.Random(f"{self.seed} host {number}")
        drift = luck.choice((-1, 1)) * self.faults.drift
        if drift:
            self.faults.count(Kind.CLOCK)

        def kill(point: str) -> None:
            self._crash(host, point)

        host = Host(name, self.network.wire(kill), self.loop, TIMING, self._registry, luck=luck, drift=drift)
        self.hosts.append(host)
        self.loop.spawn(host, self._run(host), f"run {name}")

    async def _run(self, host: Host) -> None:
        """What a supervisor sees of a process."""
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
        self.recording.add(Fault(self.now(), Kind.CRASH, host.name, point))
        host.dead = host.stands = True
        host.services = None
        host.unplug()
        wait = self.faults.choose((0.05, 1.0, 4.0, 11.0))
        self.loop.call_later(wait, self._begin, host.name, context=self.loop.outside)

    # --- the end

    async def _heal(self) -> None:
        self._healed = True
        self.network.down = False
        for host in self.hosts:
            self._thaw(host)
        for _ in range(int(PATIENCE)):
            if await self.users.discard_letters():
                break
            await asyncio.sleep(1.0)
        live = await self.store.list_runs(RunFilter(states=_LIVE), cursor=None, limit=1000)
        for run in live.items:
            if run.paused:  # what waits behind it in its gate would wait for ever
                await self.users.resume(run.job_id, Misfire.ONCE)
        there = await self.store.list_runs(RunFilter(), cursor=None, limit=LEAST_RUNS)
        await self.users.make_up(LEAST_RUNS - len(there.items))

    async def _come_to_rest(self) -> None:
        deadline = self.loop.time() + PATIENCE
        await asyncio.sleep(QUIET)
        while await self._unfinished() and self.loop.time() < deadline:
            await asyncio.sleep(3.0)
            await self.users.discard_letters()

    async def _unfinished(self) -> bool:
        live = await self.store.list_runs(RunFilter(states=_LIVE), cursor=None, limit=1000)
        return any(not run.paused and run.due_at <= self.now() for run in live.items)

    # --- what handlers do, and what the store answers

    async def _work(self, run: Attempt, label: str, seconds: float = 0.0, fails: int = 0) -> int:
        host = MACHINE.get()
        assert isinstance(host, Host)
        node = host.node_id

        def note(event: str, *, good: bool = False) -> None:
            self.recording.add(
                Effect(
                    self.now(), event, RunId(run.id.removeprefix("run_")), JobId(run.job_id.removeprefix("job_")),
                    run.attempt, run.fence, run.due_at, label, host.name, node, good,
                )
            )  # fmt: skip

        note("START")
        try:
            if seconds:
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            note("STOPPED")
            raise
        note("END", good=run.attempt > fails)
        if run.attempt <= fails:
            raise ValueError(f"attempt {run.attempt}")
        return run.fence

    def _watch(self, verb: str, args: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        now, add = self.now(), self.recording.add
        match verb:
            case "claim":
                for run in answer.runs:
                    add(Leased(now, run.id, run.fence, args[0].node))
            case "settle" | "end_waiting":
                for settled, accepted in zip(args[0], answer, strict=True):
                    add(Reported(now, settled.run.id, settled.run.fence, settled.run.state, accepted))
            case "beat" if answer is not None:
                add(Beaten(now, args[0], options["now"]))
            case "register":
                add(Beaten(now, args[0].id, args[0].beat_at))
            case "bury":
                for node in answer:
                    add(Gone(now, node))
            case "unregister":
                add(Gone(now, args[0]))


_LIVE = frozenset(State) - FINAL


def simulate(seed: int) -> Outcome:
    """Live one life, and judge it."""
    random.seed(seed)  # for the jitter of duties that back off
    loop = SimulatedLoop()
    with memory_store(lambda: START + timedelta(microseconds=loop.micros)) as store, structlog.testing.capture_logs():
        life = Life(seed, loop, store)
        try:
            loop.run_until_complete(life.live())
            found = [*life.violations, *loop.run_until_complete(judge(life))]
            records = tuple(life.recording.records)  # before all that is still under way is ended by force
        finally:
            life.network.over = True
            _put_to_rest(loop, life.hosts)
        return Outcome(seed=seed, violations=found, fired=life.faults.fired, runs=life.runs, records=records)


def _put_to_rest(loop: SimulatedLoop, hosts: list[Host]) -> None:
    """End every task, so that nothing is left to the garbage collector; what they still do reaches no store."""
    for host in hosts:
        loop.go_on(host)

    async def ended() -> None:
        for _ in range(ROUNDS):  # what ends may begin something else on its way
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=60)

    loop.run_until_complete(ended())
    loop.close()
