"""Issue 16: kills within a batch and within retention, a pooler that shares connections, a store whose clock steps."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import attacks
from tests.system.cluster import Cluster
from tests.system.fixtures import OpenCluster
from tests.system.pooler import Pooler
from tests.system.postgres import OwnPostgres

pytestmark = pytest.mark.acceptance


def test_a_batch_whose_server_is_killed_is_made_once_when_it_is_sent_again(
    kind: str, new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    report_figure(attacks.check_kills_in_batches(new_cluster(kind), jobs=10_000, kills=6, seed=16))


def test_nodes_that_are_killed_while_they_delete_history_delete_what_is_old_and_no_more(
    kind: str, new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    figures = attacks.check_kills_in_retention(new_cluster(kind), runs=60_000, days=10, kills=6, seed=16)
    report_figure(figures)


def test_nodes_behind_a_pooler_lose_nothing_when_one_dies(tmp_path: Path, report_figure: ReportFigure) -> None:
    with OwnPostgres() as postgres, Pooler(postgres.socket, size=6) as pooler:
        store = f"postgresql://postgres@127.0.0.1:{pooler.port}/postgres?pooler=1"
        with Cluster(tmp_path, store) as cluster:
            cluster.migrate()
            report_figure(attacks.check_pooler(cluster, pooler, seconds=30, per_second=30, kill=True))
        cluster.check()


@pytest.mark.parametrize("steps", [(20, 0), (-20, 0), (3600, 3590)], ids=["ahead", "back", "far ahead"])
def test_a_store_whose_clock_steps_makes_each_slot_once(
    tmp_path: Path, steps: tuple[int, ...], report_figure: ReportFigure
) -> None:
    with OwnPostgres(wrong_clock=True) as postgres, Cluster(tmp_path, postgres.url) as cluster:
        cluster.migrate()
        report_figure(attacks.check_clock_steps(cluster, postgres.clock, steps))
        cluster.close()
        cluster.check()
