"""Nodes of one role each, with a link to PostgreSQL and a wall clock of their own that can be broken."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.system.cluster import Cluster, Server
from tests.system.postgres import OwnPostgres
from tests.system.proxy import Link, Proxy
from tests.system.skew import WallClock
from tests.system.store_check import unnoticed_loss


@dataclass(eq=False, slots=True)
class Member:
    """A node, which may be restarted as another process."""

    name: str
    role: str
    links: Sequence[Link]  # to each server of the store
    clock: WallClock
    server: Server

    @property
    def link(self) -> Link:
        """The link to the first, and usually only, server."""
        return self.links[0]


class AnyFleet(Protocol):
    """Nodes that faults are injected into, whatever they keep their truth in."""

    cluster: Cluster
    members: list[Member]
    answered_at: Callable[[], float]

    def check_noticing(self, job: str) -> list[str]:
        """Damage the store by hand, tell if `horae check` does not notice it, and mend the damage."""


class Fleet:
    """Nodes with links to one store."""

    def __init__(self, cluster: Cluster, proxies: Mapping[OwnPostgres, Proxy]) -> None:
        self.cluster = cluster
        self.servers = list(proxies)
        self.postgres = self.servers[0]  # the one that takes writes
        self._proxies = proxies
        self.members: list[Member] = []
        self.answered_at: Callable[[], float] = lambda: 0.0  # when a client last had a job accepted

    def start(self, *roles: str, wrong_by: int = 0) -> None:
        """Start one member per role and wait until all are ready; their clocks are wrong by some seconds."""
        for role in roles:
            name = f"{role}-{len(self.members)}"
            links = [proxy.link() for proxy in self._proxies.values()]
            clock = WallClock(self.cluster.folder / f"{name}.clock")
            clock.jump(wrong_by)
            server = self._spawn(role, name, links, clock)
            self.members.append(Member(name, role, links, clock, server))
        self.cluster.ready(*[member.server for member in self.members])

    def replace(self, member: Member, *, wait: bool = False) -> None:
        """Restart the process of a member, as a supervisor does."""
        member.server = self._spawn(member.role, member.name, member.links, member.clock)
        if wait:
            self.cluster.ready(member.server)

    def check_noticing(self, job: str) -> list[str]:
        """Delete runs of a job for a moment; tell if `horae check` does not notice it."""
        return unnoticed_loss(self.postgres.url, job)

    def of(self, role: str) -> list[Member]:
        return [member for member in self.members if member.role == role]

    def links_to(self, postgres: OwnPostgres) -> list[Link]:
        """The links of all members to a server."""
        return [member.links[self.servers.index(postgres)] for member in self.members]

    def _spawn(self, role: str, name: str, links: Sequence[Link], clock: WallClock) -> Server:
        hosts = ",".join(f"127.0.0.1:{link.port}" for link in links)
        store = f"postgresql://postgres@{hosts}/postgres"
        return self.cluster.node(role, name=name, wait=False, settings={"HORAE_STORE": store, **clock.settings})


@contextmanager
def open_fleet(folder: Path, roles: Sequence[str], **settings: str) -> Iterator[Fleet]:
    """Open a fleet on its own PostgreSQL; at the end check the store."""
    with OwnPostgres() as postgres, Proxy(postgres.socket) as proxy:
        with Cluster(folder, postgres.url, **settings) as cluster:
            cluster.migrate()
            fleet = Fleet(cluster, {postgres: proxy})
            fleet.start(*roles)
            yield fleet
        cluster.check()
