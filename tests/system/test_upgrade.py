"""A rolling upgrade from the release before, under load: nothing stops, and nothing is lost."""

from pathlib import Path

import pytest

from tests.system.fixtures import QUICK, OpenCluster
from tests.system.releases import next_release, previous_release, shared_folder
from tests.system.upgrade import LATER, check_upgrade

ROLES = ("api,planner,worker", "api,planner,worker")


def test_an_upgrade_needs_no_stop_and_loses_nothing(
    kind: str, new_cluster: OpenCluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before, after = previous_release(shared_folder(tmp_path_factory)), next_release(tmp_path, LATER)
    cluster = new_cluster(kind, migrated=False, **QUICK)
    check_upgrade(cluster, before, after, ROLES, per_second=10, latest=2)
