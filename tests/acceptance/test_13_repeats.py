"""Issue 3, line 3: repeated requests take effect once, even if a server dies between commit and answer."""

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system import repeats
from tests.system.cluster import Cluster
from tests.system.fixtures import OpenCluster

pytestmark = pytest.mark.acceptance


@pytest.fixture
def trio(new_cluster: OpenCluster, kind: str) -> Cluster:
    """Three servers with every role on one store."""
    cluster = new_cluster(kind)
    cluster.ready(*[cluster.node(wait=False) for _ in range(3)])
    return cluster


def test_200_creates_at_once_with_one_key_make_one_job(trio: Cluster, report_figure: ReportFigure) -> None:
    report_figure(repeats.check_storm(trio, requests=200))


def test_200_creates_of_one_key_outlive_a_server(trio: Cluster) -> None:
    repeats.check_storm_with_a_kill(trio, requests=200)


def test_of_50_patches_at_once_of_one_revision_one_succeeds(trio: Cluster, report_figure: ReportFigure) -> None:
    report_figure(repeats.check_patches(trio, requests=50))


def test_an_act_whose_answer_is_lost_with_its_server_is_done_once(trio: Cluster) -> None:
    for turn in range(3):
        repeats.check_lost_create(trio, f"lost {turn}")
        repeats.check_lost_run(trio)


def test_a_batch_is_completed_after_its_server_died_within_it(trio: Cluster, report_figure: ReportFigure) -> None:
    report_figure(repeats.check_half_a_batch(trio, jobs=10_000))
