"""Overload at a small size; the acceptance suite has the full size."""

from pathlib import Path

from tests.system import overload
from tests.system.fixtures import OpenCluster


def test_a_backlog_and_a_herd_start_in_order_and_hold_up_nobody(new_cluster: OpenCluster, tmp_path: Path) -> None:
    cluster, records = new_cluster("postgres"), tmp_path / "records"
    _, servers = overload.check_backlog(cluster, records, jobs=2000, workers=1, within=60)
    overload.check_herd(cluster, records, servers, jobs=2000, seconds=1, within=60)
