"""Kills within a batch and within retention, and a pooler, at a small size; the acceptance suite has the full size."""

from pathlib import Path

from tests.system import attacks
from tests.system.cluster import Cluster
from tests.system.fixtures import OpenCluster
from tests.system.pooler import Pooler
from tests.system.postgres import OwnPostgres


def test_a_batch_whose_server_is_killed_is_made_once_when_it_is_sent_again(kind: str, new_cluster: OpenCluster) -> None:
    attacks.check_kills_in_batches(new_cluster(kind), jobs=1_000, kills=1, seed=16)


def test_nodes_that_are_killed_while_they_delete_history_delete_what_is_old_and_no_more(
    kind: str, new_cluster: OpenCluster
) -> None:
    attacks.check_kills_in_retention(new_cluster(kind), runs=4_000, days=4, kills=1, seed=16)


def test_nodes_work_behind_a_pooler_that_changes_connections_between_transactions(tmp_path: Path) -> None:
    with OwnPostgres() as postgres, Pooler(postgres.socket, size=3) as pooler:
        store = f"postgresql://postgres@127.0.0.1:{pooler.port}/postgres?pooler=1"
        with Cluster(tmp_path, store) as cluster:
            cluster.migrate()
            attacks.check_pooler(cluster, pooler, seconds=4, per_second=10, kill=False)
        cluster.check()
