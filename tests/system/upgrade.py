"""An upgrade under load: the schema is migrated beside nodes of the release before, which are replaced one by one."""

from collections.abc import Mapping, Sequence

from tests.system import chaos
from tests.system.chaos import Figures, Load
from tests.system.cluster import Cluster, Server
from tests.system.on_time import percentile
from tests.system.releases import PREVIOUS_VERSIONS, Release
from tests.system.waiting import let_pass

# What the release after this one does to the schema: it expands, in each of the ways that there are.
ADD = "ALTER TABLE runs ADD COLUMN later integer;\nALTER TABLE jobs ADD COLUMN later integer;\n"
FILL = "-- way: batches\nUPDATE jobs SET later = 1 WHERE id IN (SELECT id FROM jobs WHERE later IS NULL LIMIT 2);\n"
LATER = {
    "postgres/900_later.sql": ADD,
    "postgres/901_fill.sql": FILL,
    "postgres/902_index.sql": (
        "-- way: concurrently\nCREATE INDEX CONCURRENTLY IF NOT EXISTS runs_later ON {schema}.runs (later);\n"
    ),
    "sqlite/900_later.sql": ADD,
    "sqlite/901_fill.sql": FILL,
    "sqlite/902_index.sql": "CREATE INDEX runs_later ON runs (later);\n",
}


def check_upgrade(
    cluster: Cluster, before: Release, after: Release, roles: Sequence[str], *, per_second: float, latest: float
) -> Figures:
    """Go from the release before to this one, and on to the schema of the next; slots are late by `latest` s at most.

    All under load, and the 99th percentile of the lateness, because a few nodes start all the while.
    """
    dialect = "sqlite" if cluster.store.startswith("sqlite:") else "postgres"
    assert before.expected_version(dialect) == PREVIOUS_VERSIONS[dialect]
    assert after.expected_version(dialect) == 902
    cluster.migrate_by(before.settings)
    nodes = [cluster.node(role, wait=False, settings=before.settings) for role in roles]
    cluster.ready(*nodes)
    figures = Figures()
    slots = chaos.create_every_second(cluster, 3, overlap="allow")
    slots += chaos.create_every_second(cluster, 1, overlap="skip")
    with Load(cluster, per_second=per_second) as load:
        cluster.migrate()  # to the schema of this release, and the nodes of the one before go on
        nodes[0] = _restarted(cluster, nodes[0], before.settings, figures)
        for place, node in enumerate(nodes):
            nodes[place] = _restarted(cluster, node, {}, figures)
        cluster.migrate_by(after.settings)
        nodes[-1] = _restarted(cluster, nodes[-1], {}, figures)  # also on the schema of the next
        let_pass(1)
    figures.refused = load.refused
    assert load.accepted, "there was a load"
    chaos.judge(cluster, load.accepted, slots, figures, within=chaos.RECOVERY_SECONDS)
    assert figures.crashed == 0, "an upgrade counted as a crash"
    late = percentile(figures.latenesses, 99)
    assert late < latest, f"slots were {late:.2f} s late: {sorted(figures.latenesses)[-10:]}"
    return figures


def _restarted(cluster: Cluster, server: Server, settings: Mapping[str, str], figures: Figures) -> Server:
    """Start a node, and then stop the one that it replaces, as a rolling update does."""
    fresh = cluster.node(",".join(sorted(server.roles)), wait=False, settings=settings)
    cluster.ready(fresh)
    figures.recoveries.append(server.stop(within=30))
    assert "Traceback" not in server.output(), server.tail()
    return fresh
