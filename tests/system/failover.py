"""A primary that is lost under load, and a standby that is promoted in its place: nodes know both, and go over."""

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
    """A fleet on a primary and its standby, replicated synchronously; at the end the store is checked."""
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
    """The primary is lost, and the standby promoted; what was the primary then follows as the new standby."""

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
        """It ends as by a power cut, and its machine says so to whoever asks."""
        primary.stop_at_once()


class PrimaryDies(Failover):
    name = "primary dies"


class PrimaryFallsSilent(Failover):
    """Its machine is off the network: nobody hears that it is gone."""

    name = "primary falls silent"

    def lose(self, primary: OwnPostgres) -> None:
        for link in self.fleet.links_to(primary):
            link.silent = True
        primary.stop_at_once()
