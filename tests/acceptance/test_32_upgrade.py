"""A rolling upgrade from the release before, under load, with nodes of each role and the default timings."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure
from tests.system.fixtures import OpenCluster
from tests.system.releases import next_release, previous_release
from tests.system.upgrade import LATER, check_upgrade

pytestmark = pytest.mark.acceptance

ROLES = ("api", "api", "planner", "planner", "worker", "worker", "worker")


def test_an_upgrade_of_seven_nodes_needs_no_stop_and_loses_nothing(
    kind: str, new_cluster: OpenCluster, tmp_path: Path, report_figure: ReportFigure
) -> None:
    before, after = previous_release(tmp_path), next_release(tmp_path, LATER)
    cluster = new_cluster(kind, migrated=False)
    report_figure(check_upgrade(cluster, before, after, ROLES, per_second=40, latest=1))
