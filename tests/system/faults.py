"""The faults of nodes, their links and their store: each kind injects a fault, heals it, and counts."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.system.cluster import Cluster
from tests.system.fleet import Fleet, Member
from tests.system.postgres import MAX_CONNECTIONS
from tests.system.proxy import Side, TrapAction
from tests.system.waiting import EPOCH, eventually, let_pass

TRAP_SECONDS = 10.0  # in which a statement that is done all the while comes by
LEASE_SECONDS = 15.0
RECOVERY_SECONDS = 60.0  # more than is promised, so that a breach is measured

# Where a node may die: what it has just asked the store to write, or has written without knowing.
CRASH_POINTS = {
    "api": ("create_runs", "commit"),
    "planner": ("fire_jobs", "create_runs", "commit"),
    "worker": ("claim", "start_runs", "end_runs"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One occurrence of a fault, by the clock of the handlers."""

    fault: str
    target: str
    at: float
    until: float


class Fault(ABC):
    """A kind of fault; `fired` are its occurrences."""

    name: str

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self.fleet = fleet
        self.rng = rng
        self.fired: list[Firing] = []
        self.worker_recoveries: list[float] = []  # seconds until what a worker ran is restarted
        self.store_recoveries: list[float] = []  # seconds until every worker starts runs and the API accepts jobs

    def strike(self) -> bool:
        """Inject the fault, wait until it matters, and heal it; return False if it did not take effect."""
        began = clock()
        try:
            target = self.inject()
        finally:
            self.heal()
        if target is not None:
            self.fired.append(Firing(fault=self.name, target=target, at=began, until=clock()))
        return target is not None

    @abstractmethod
    def inject(self) -> str | None:
        """Inject the fault; return its target, or None if it had none."""

    def heal(self) -> None:  # noqa: B027 - a kill leaves nothing to put right
        """Undo the fault."""

    def any_member(self, *roles: str) -> Member:
        return self.rng.choice([member for member in self.fleet.members if not roles or member.role in roles])


def clock() -> float:
    """The steady clock of the handlers in seconds since 1970."""
    return EPOCH + time.monotonic()


# --- links


class LinkFault(Fault):
    """A fault of a link for some time."""

    seconds: float

    def inject(self) -> str | None:
        self._member = self.any_member()
        link = self._member.link
        before = link.fired[self.name]
        self.break_link()
        let_pass(self.seconds)
        return self._member.name if link.fired[self.name] > before else None

    @abstractmethod
    def break_link(self) -> None:
        """Break the link."""

    def heal(self) -> None:
        self._member.link.heal()


class Delay(LinkFault):
    name, seconds = "delay", 3.0

    def break_link(self) -> None:
        self._member.link.delay = self.rng.uniform(0.05, 0.4)


class Throttle(LinkFault):
    name, seconds = "throttle", 4.0

    def break_link(self) -> None:
        self._member.link.rate = self.rng.uniform(2_000, 20_000)


class HalfOpen(LinkFault):
    """A silent link, for longer than any command may take."""

    name, seconds = "half-open", 12.0

    def break_link(self) -> None:
        self._member.link.silent = True


class Reset(LinkFault):
    name, seconds = "reset", 0.5

    def break_link(self) -> None:
        self._member.link.reset()


class Cut(Fault):
    """Cut a connection in the middle of a write."""

    side: Side

    def inject(self) -> str | None:
        member = self.any_member()
        trap = member.link.set_trap([*CRASH_POINTS[member.role], "commit"], self.side, commits=True)
        trap.decide(TrapAction.CUT)
        if not trap.sprung.wait(TRAP_SECONDS):
            member.link.take_away(trap)
            return None
        return f"{member.name} {self.side.value} {trap.caught}"


class CutBefore(Cut):
    name, side = "cut before commit", Side.BEFORE


class CutAfter(Cut):
    name, side = "cut after commit", Side.AFTER


# --- processes


class Kill(Fault):
    """Kill a node at a statement: before the server sees it, before but it arrives later, or after its commit."""

    role: str

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        super().__init__(fleet, rng)
        points = [
            (statement, side, verdict)
            for statement in CRASH_POINTS[self.role]
            for side, verdict in (
                (Side.BEFORE, TrapAction.CUT),
                (Side.BEFORE, TrapAction.LATE),
                (Side.AFTER, TrapAction.CUT),
            )
        ]
        self._points = rng.sample(points, len(points))  # each in turn

    def inject(self) -> str | None:
        member = self.any_member(self.role)
        statement, side, verdict = point = self._points.pop(0)
        self._points.append(point)
        trap = member.link.set_trap([statement], side)
        caught = trap.sprung.wait(TRAP_SECONDS)
        if not caught:
            member.link.take_away(trap)
            return None
        died_at, pid = clock(), member.server.pid
        member.server.kill()
        trap.decide(verdict)
        self.fleet.replace(member, wait=True)
        self.await_recovery(pid, died_at)
        late = " (which arrives late)" if verdict is TrapAction.LATE else ""
        return f"{member.name} {side.value} {statement}{late}"

    def await_recovery(self, pid: int, died_at: float) -> None:
        """Wait until other nodes have taken over."""


class KillApi(Kill):
    name, role = "kill api", "api"


class KillPlanner(Kill):
    name, role = "kill planner", "planner"


class KillWorker(Kill):
    """Kill a worker, and measure how soon its runs are restarted."""

    name, role = "kill worker", "worker"

    def await_recovery(self, pid: int, died_at: float) -> None:
        self.worker_recoveries += seconds_to_restart(self.fleet.cluster, pid, died_at)


def seconds_to_restart(cluster: Cluster, pid: int, died_at: float) -> list[float]:
    """Wait until everything that a dead worker ran has started again; the seconds that took, if it ran anything."""
    effects = cluster.effects
    notes = effects.all()
    running = {note.run for note in notes if note.pid == pid and note.event == "START"}
    running -= {note.run for note in notes if note.event == "END"}
    again: dict[str, float] = {}

    def all_again() -> bool:
        for note in effects.all()[len(notes) :]:
            again.setdefault(note.run, note.at)
        return running <= again.keys()

    eventually(all_again, f"{len(running)} runs of {pid} start again", within=RECOVERY_SECONDS)
    return [max(again[run] for run in running) - died_at] if running else []


class Freeze(Fault):
    """Freeze a node for longer than its lease, so that it is declared dead before it continues."""

    name = "freeze"
    seconds = LEASE_SECONDS + 5

    def inject(self) -> str | None:
        member = self.any_member("worker")
        server = member.server
        before = server.output().count("node_rejoined")
        server.freeze()
        let_pass(self.seconds)
        server.thaw()
        until = clock() + 5
        while clock() < until:
            if server.output().count("node_rejoined") > before:
                return member.name
            let_pass(0.1)
        return None  # nobody had given it up yet


class Restart(Fault):
    """Restart all nodes in two waves, as a deployment does."""

    name = "rolling restart"

    def inject(self) -> str | None:
        order = self.rng.sample(self.fleet.members, len(self.fleet.members))
        for wave in (order[::2], order[1::2]):
            old = [member.server for member in wave]
            for member in wave:
                self.fleet.replace(member)
            self.fleet.cluster.ready(*[member.server for member in wave])
            for server in old:
                server.terminate()
            for server in old:
                code = server.wait(within=45)
                assert code == 0, f"{server.name} ended with {code}:\n{server.tail()}"
        return ", ".join(member.name for member in order)


class Jump(Fault):
    """Set the wall clock of one node an hour wrong for a while."""

    hours: int
    seconds = 4.0

    def inject(self) -> str | None:
        self._member = self.any_member()
        self._member.clock.jump(self.hours * 3600)
        let_pass(self.seconds)
        return self._member.name if self._member.clock.is_of(self._member.server.pid) else None

    def heal(self) -> None:
        self._member.clock.jump(0)


class JumpAhead(Jump):
    name, hours = "clock +1 h", 1


class JumpBack(Jump):
    name, hours = "clock -1 h", -1


# --- the store


class StoreOutage(Fault):
    """Stop the store for a while, and measure how soon all nodes work again."""

    def await_recovery(self, back_at: float) -> None:
        effects = self.fleet.cluster.effects
        known = len(effects.all())
        workers = {member.server.pid for member in self.fleet.of("worker")}

        def at_work() -> bool:
            starting = {note.pid for note in effects.all()[known:] if note.event == "START" and note.at > back_at}
            return workers <= starting and self.fleet.answered_at() > back_at

        eventually(at_work, "every worker starts runs and the API accepts jobs", within=RECOVERY_SECONDS)
        self.store_recoveries.append(clock() - back_at)


class StoreRestart(StoreOutage):
    """Stop PostgreSQL as by a power cut, and start it again."""

    name = "postgres stop"

    def inject(self) -> str | None:
        self.fleet.postgres.stop_at_once()
        let_pass(self.rng.uniform(0, 4))
        self.fleet.postgres.start()
        self.await_recovery(clock())
        return "postgres"


class Storm(Fault):
    """Take all connections of the server while a node needs new ones."""

    name = "connection storm"
    seconds = 3.0

    def inject(self) -> str | None:
        refused = asyncio.run(self._storm())
        return f"{refused} refused" if refused else None

    async def _storm(self) -> int:
        connecting = [asyncpg.connect(self.fleet.postgres.url, timeout=10) for _ in range(MAX_CONNECTIONS)]
        opened: Sequence[Any] = await asyncio.gather(*connecting, return_exceptions=True)
        self.any_member().link.reset()
        await asyncio.sleep(self.seconds)
        refused = 0
        for one in opened:
            if isinstance(one, asyncpg.TooManyConnectionsError):
                refused += 1
            elif isinstance(one, BaseException):
                raise one
            else:
                with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await one.close(timeout=5)
        return refused


KINDS: Sequence[Callable[[Fleet, random.Random], Fault]] = (
    Delay,
    Throttle,
    HalfOpen,
    Reset,
    CutBefore,
    CutAfter,
    KillApi,
    KillPlanner,
    KillWorker,
    Freeze,
    Restart,
    JumpAhead,
    JumpBack,
    StoreRestart,
    Storm,
)
