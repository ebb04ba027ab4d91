"""Line 5: kill -9, SIGSTOP and rolling restarts under load, with the default timings."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import chaos
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance


def test_ten_kills_of_each_role_cost_nothing_but_a_moment(
    new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    cluster = new_cluster("postgres")
    chaos.start_fleet(cluster, workers=3, planners=3, apis=3)
    figures = chaos.check_kills(cluster, rounds=10, running=50, seconds=8, recurring=10, per_second=20)
    report_figure(figures)


def test_a_worker_frozen_for_40_s_starts_nothing_stale(new_cluster: OpenCluster, report_figure: ReportFigure) -> None:
    cluster = new_cluster("postgres")
    chaos.start_fleet(cluster, workers=3, planners=1, apis=1)
    report_figure(chaos.check_freeze(cluster, seconds=40, running=30, per_second=20))


def test_a_rolling_restart_loses_and_burns_nothing(new_cluster: OpenCluster, report_figure: ReportFigure) -> None:
    cluster = new_cluster("postgres", HORAE_DRAIN_SECONDS="5")
    nodes = [cluster.node(wait=False) for _ in range(3)]
    cluster.ready(*nodes)
    report_figure(chaos.check_rolling_restart(cluster, nodes, longer_than_drain=12, per_second=20))
