"""The faults of a fleet with a queue in front of its store: nodes, queues, and what the services do to requests."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from tests.engines.aws_answers import Fault as AwsFault
from tests.engines.aws_faults import AwsLink
from tests.engines.tcp_faults import TcpLink
from tests.system.cloud_fleet import CloudFleet
from tests.system.faults import Fault, clock, seconds_to_restart
from tests.system.proxy import Link
from tests.system.waiting import eventually, let_pass

Kind = Callable[[CloudFleet, random.Random], Fault]

BURST_SECONDS = 3.0
OUTAGE_SECONDS = 2.0
TRAP_SECONDS = 10.0
CHANCE = 0.3  # of a request in a burst
RECOVERY_SECONDS = 60.0  # more than is promised, so that a breach is measured


class CloudFault(Fault):
    """A fault of a fleet with a queue."""

    fleet: CloudFleet  # type: ignore[assignment]

    def __init__(self, fleet: CloudFleet, rng: random.Random) -> None:
        super().__init__(fleet, rng)  # type: ignore[arg-type]

    def await_work(self, since: float) -> None:
        """Measure how soon every worker starts runs again and the API accepts jobs."""
        effects = self.fleet.cluster.effects
        known = len(effects.all())
        workers = {member.server.pid for member in self.fleet.of("worker")}

        def at_work() -> bool:
            starting = {note.pid for note in effects.all()[known:] if note.event == "START" and note.at > since}
            return workers <= starting and self.fleet.answered_at() > since

        eventually(at_work, "every worker starts runs and the API accepts jobs", within=RECOVERY_SECONDS)
        self.store_recoveries.append(clock() - since)


# --- processes


class KillRole(CloudFault):
    """Kill a node that has a role with kill -9 at any instant, and start it again at once."""

    role: str

    def inject(self) -> str | None:
        member = self.rng.choice(self.fleet.of(self.role))
        pid = member.server.pid
        died_at = clock()
        member.server.kill()
        self.fleet.replace(member, wait=True)
        self.worker_recoveries += seconds_to_restart(self.fleet.cluster, pid, died_at)
        return member.name


class KillApi(KillRole):
    name, role = "kill api", "api"


class KillPlanner(KillRole):
    name, role = "kill planner", "planner"


class KillWorker(KillRole):
    name, role = "kill worker", "worker"


# --- the queue


class EmptyQueue(CloudFault):
    """Lose every ticket while the server goes on."""

    name = "queue emptied"

    def inject(self) -> str | None:
        self.fleet.queue.empty()
        self.await_work(clock())
        return "queue"


class RestartQueue(CloudFault):
    """End the server of the queue, and start it again without its tickets."""

    name = "queue restarted"

    def inject(self) -> str | None:
        self.fleet.queue.restart()
        self.await_work(clock())
        return "queue"


# --- links


class LinkFault(CloudFault):
    """Break the link of one node for a moment."""

    to: str  # store or queue
    seconds = BURST_SECONDS

    def inject(self) -> str | None:
        links = self.fleet.store_links if self.to == "store" else self.fleet.queue_links
        self._link = self.rng.choice(links)
        before = self._link.fired.total()
        self.break_link(self._link)
        let_pass(self.seconds)
        name = self.fleet.members[links.index(self._link)].name
        return f"{name} {self.to}" if self._link.fired.total() > before else None

    @abstractmethod
    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        """Break it."""

    def heal(self) -> None:
        self._link.heal()


class QueueCut(LinkFault):
    name, to = "queue cut", "queue"

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, TcpLink)
        link.cut()


class QueueDelay(LinkFault):
    name, to = "queue delay", "queue"

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, TcpLink)
        link.delay = self.rng.uniform(0.05, 0.3)


class QueueSilent(LinkFault):
    name, to, seconds = "queue silent", "queue", 8.0

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, TcpLink)
        link.silent = True


class QueueAnswersLost(LinkFault):
    name, to = "queue answers lost", "queue"

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, TcpLink)
        link.answers_to_lose = 5


class StoreReset(LinkFault):
    name, to = "store reset", "store"

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, Link)
        link.reset()


class StoreDelay(LinkFault):
    name, to = "store delay", "store"

    def break_link(self, link: AwsLink | TcpLink | Link) -> None:
        assert isinstance(link, Link)
        link.delay = self.rng.uniform(0.05, 0.3)


# --- what the services do


class AwsBurst(CloudFault):
    """Let a fault hit many requests of every node for a while, until it has hit at least one."""

    fault: AwsFault
    to: str
    chance = CHANCE

    def inject(self) -> str | None:
        links = self._links()
        before = sum(link.fired[self.fault] for link in links)
        for link in links:
            link.chances = {self.fault: self.chance}
        give_up_at = time.monotonic() + TRAP_SECONDS
        over_at = time.monotonic() + BURST_SECONDS
        while time.monotonic() < over_at:
            let_pass(0.3)
            if self.fault is AwsFault.STALE_INDEX:  # lists alone read indexes
                self.fleet.cluster.rest.get("/v1/runs", limit=100)
        while (hits := sum(link.fired[self.fault] for link in links) - before) == 0:
            if time.monotonic() > give_up_at:
                return None
            let_pass(0.2)
        return f"{self.to}, {hits} requests"

    def heal(self) -> None:
        for link in self._links():
            link.heal()

    def _links(self) -> list[AwsLink]:
        links = self.fleet.store_links if self.to == "store" else self.fleet.queue_links
        return [link for link in links if isinstance(link, AwsLink)]


def burst(fault: AwsFault, to: str, chance: float = CHANCE) -> Kind:
    """A kind of fault that lets one thing happen to many requests to the store or the queue."""

    class Burst(AwsBurst):
        name = f"{to}: {fault.value}"

    Burst.fault, Burst.to, Burst.chance = fault, to, chance
    return Burst


PROCESSES: Sequence[Kind] = (KillApi, KillPlanner, KillWorker)
QUEUES: Sequence[Kind] = (EmptyQueue, RestartQueue)
REDIS: Sequence[Kind] = (QueueCut, QueueDelay, QueueSilent, QueueAnswersLost)
POSTGRES: Sequence[Kind] = (StoreReset, StoreDelay)
DYNAMODB: Sequence[Kind] = (
    burst(AwsFault.THROTTLED, "store"),
    burst(AwsFault.THROTTLED_STATEMENT, "store"),
    burst(AwsFault.CONFLICTING_STATEMENT, "store"),
    burst(AwsFault.UNPROCESSED_ITEMS, "store"),
    burst(AwsFault.UNPROCESSED_KEYS, "store"),
    burst(AwsFault.CONFLICT, "store"),
    burst(AwsFault.STALE_INDEX, "store", 1.0),
    burst(AwsFault.CUT_BEFORE, "store", 0.1),
    burst(AwsFault.CUT_AFTER, "store", 0.1),
    burst(AwsFault.SLOW, "store", 0.05),
    burst(AwsFault.ERROR, "store", 0.2),
    burst(AwsFault.ERROR_AFTER, "store", 0.1),
)
SQS: Sequence[Kind] = (
    burst(AwsFault.THROTTLED, "queue"),
    burst(AwsFault.FAILED_ENTRY, "queue"),
    burst(AwsFault.DELIVERED_TWICE, "queue"),
    burst(AwsFault.CUT_BEFORE, "queue", 0.1),
    burst(AwsFault.CUT_AFTER, "queue", 0.1),
    burst(AwsFault.SLOW, "queue", 0.1),
    burst(AwsFault.ERROR, "queue", 0.2),
)
