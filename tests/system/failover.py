"""Faults in which a PostgreSQL primary is lost under load and its standby is promoted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.system.cluster import Cluster
from tests.system.faults import StoreOutage, clock
from tests.system.fleet import Fleet
from tests.system.postgres import OwnPostgres
from tests.system.proxy import Proxy
from tests.system.waiting import let_pass


@contextmanager
def open_pair(folder: Path, roles: Sequence[str], **settings: str) -> Iterator[Fleet]:
    """Open a fleet on a synchronously replicated primary and standby; at the end check the store."""
    with (
        OwnPostgres() as primary,
        OwnPostgres() as standby,
        Proxy(primary.socket) as one,
        Proxy(standby.socket) as other,
    ):
        with Cluster(folder, primary.url, **settings) as cluster:
            cluster.migrate()
            standby.follow(primary)
            fleet = Fleet(cluster, {primary: one, standby: other})
            fleet.start(*roles)
            yield fleet
        cluster.check()


class Failover(StoreOutage):
    """Lose the primary and promote the standby; the old primary becomes the new standby."""

    def inject(self) -> str | None:
        fleet = self.fleet
        lost = fleet.postgres
        [promoted] = [server for server in fleet.servers if server is not lost]
        self.lose(lost)
        let_pass(self.rng.uniform(0, 4))
        promoted.promote()
        fleet.postgres, fleet.cluster.store = promoted, promoted.url
        self.await_recovery(clock())
        for link in fleet.links_to(lost):
            link.heal()
        lost.follow(promoted)
        return f"server {fleet.servers.index(lost)}"

    def lose(self, primary: OwnPostgres) -> None:
        """The server ends as by a power cut, and its machine refuses connections."""
        primary.stop_at_once()


class PrimaryDies(Failover):
    name = "primary dies"


class PrimaryFallsSilent(Failover):
    """The machine is off the network: connections hang."""

    name = "primary falls silent"

    def lose(self, primary: OwnPostgres) -> None:
        for link in self.fleet.links_to(primary):
            link.silent = True
        primary.stop_at_once()
