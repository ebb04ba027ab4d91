"""Nodes on a store with a queue in front of it, each with links to both that can be broken."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.engines import aws_client
from tests.engines.aws_faults import AwsFaults, AwsLink
from tests.engines.separate_server import SeparateServer
from tests.engines.servers import own_name
from tests.engines.tcp_faults import TcpFaults, TcpLink
from tests.system.cluster import Cluster, Server
from tests.system.fleet import Member
from tests.system.postgres import OwnPostgres
from tests.system.proxy import Link, Proxy
from tests.system.skew import WallClock
from tests.system.store_check import unnoticed_loss

AnyLink = AwsLink | TcpLink | Link


class Backend:
    """A store or a queue behind a proxy: its address for the test itself, and one for each node."""

    address: str  # without the proxy

    def link(self) -> tuple[AnyLink, str]:
        """A new link, and the address that leads through it."""
        raise NotImplementedError

    def empty(self) -> None:
        """Lose everything, as a queue may."""
        raise NotImplementedError

    def restart(self) -> None:
        """End the server as by a power cut, and start it again: empty, if it keeps everything in memory."""
        raise NotImplementedError

    def check_noticing(self, job: str) -> list[str]:
        """Damage it by hand, tell if `horae check` does not notice; nothing where there is no way to do that."""
        return []


class PostgresBackend(Backend):
    """PostgreSQL as a store."""

    def __init__(self, stack: ExitStack) -> None:
        self._postgres = stack.enter_context(OwnPostgres())
        self._proxy = stack.enter_context(Proxy(self._postgres.socket))
        self.address = self._postgres.url

    def link(self) -> tuple[AnyLink, str]:
        link = self._proxy.link()
        return link, f"postgresql://postgres@127.0.0.1:{link.port}/postgres"

    def check_noticing(self, job: str) -> list[str]:
        return unnoticed_loss(self.address, job)


class AwsBackend(Backend):
    """DynamoDB as a store, or SQS as a queue."""

    def __init__(self, stack: ExitStack, scheme: str, server: SeparateServer, seed: int) -> None:
        self._scheme = scheme
        self.server = server
        self._proxy = stack.enter_context(AwsFaults(server.url, seed=seed))
        self.prefix = own_name(scheme)
        self.address = self._address(server.url)

    def link(self) -> tuple[AnyLink, str]:
        link = self._proxy.link()
        return link, self._address(link.url)

    def empty(self) -> None:
        for each in aws_client.queues(self.server.url, self.prefix):
            aws_client.call(self.server.url, "sqs", "PurgeQueue", {"QueueUrl": each})

    def restart(self) -> None:
        self.server.restart()

    def _address(self, endpoint: str) -> str:
        return f"{self._scheme}://{aws_client.REGION}/{self.prefix}?endpoint={endpoint}"


class RedisBackend(Backend):
    """Redis as a queue."""

    def __init__(self, stack: ExitStack, server: SeparateServer) -> None:
        self.server = server
        self._proxy = stack.enter_context(TcpFaults(("127.0.0.1", server.port)))
        self.address = f"{server.url}/0"

    def link(self) -> tuple[AnyLink, str]:
        link = self._proxy.link()
        return link, f"{link.url}/0"

    def empty(self) -> None:
        self.server.tell_redis("FLUSHALL")

    def restart(self) -> None:
        self.server.restart()


class CloudFleet:
    """Nodes with links to a store and a queue."""

    def __init__(self, cluster: Cluster, store: Backend, queue: Backend) -> None:
        self.cluster = cluster
        self.store = store
        self.queue = queue
        self.members: list[Member] = []
        self.store_links: list[AnyLink] = []
        self.queue_links: list[AnyLink] = []
        self.answered_at: Callable[[], float] = lambda: 0.0  # when a client last had a job accepted
        self._addresses: dict[str, dict[str, str]] = {}

    def start(self, *roles: str) -> None:
        """Start one member per set of roles and wait until all are ready."""
        for role in roles:
            name = f"{role.replace(',', '+')}-{len(self.members)}"
            (store, store_address), (queue, queue_address) = self.store.link(), self.queue.link()
            self._addresses[name] = {"HORAE_STORE": store_address, "HORAE_QUEUE": queue_address}
            self.store_links.append(store)
            self.queue_links.append(queue)
            clock = WallClock(self.cluster.folder / f"{name}.clock")
            links: Sequence[AnyLink] = [store, queue]
            self.members.append(Member(name, role, links, clock, self._spawn(role, name)))  # type: ignore[arg-type]
        self.cluster.ready(*[member.server for member in self.members])

    def replace(self, member: Member, *, wait: bool = False) -> None:
        """Restart the process of a member, as a supervisor does."""
        member.server = self._spawn(member.role, member.name)
        if wait:
            self.cluster.ready(member.server)

    def of(self, role: str) -> list[Member]:
        """The members that have a role."""
        return [member for member in self.members if role in member.role.split(",")]

    def check_noticing(self, job: str) -> list[str]:
        """Damage the store by hand; tell if `horae check` does not notice it."""
        return self.store.check_noticing(job)

    def _spawn(self, role: str, name: str) -> Server:
        return self.cluster.node(role, name=name, wait=False, settings=self._addresses[name])


Opener = Callable[[ExitStack], tuple[Backend, Backend]]


@contextmanager
def open_cloud_fleet(
    backends: Opener, folder: Path, roles: Sequence[str], *, kept: list[CloudFleet], **settings: str
) -> Iterator[CloudFleet]:
    """Open a fleet on a store and a queue of its own, also into `kept`; at the end check the store."""
    with ExitStack() as stack:
        store, queue = backends(stack)
        with Cluster(folder, store.address, HORAE_QUEUE=queue.address, **settings) as cluster:
            cluster.migrate()
            fleet = CloudFleet(cluster, store, queue)
            kept.append(fleet)
            fleet.start(*roles)
            yield fleet
        cluster.check()
